"""DTensors, FSDP2 and DDP: two processes get the losses and gradients of one.

The checks run in the two processes (tests/kernels/sharded.py), once for all tests.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from .sharded import CHECKS, RANKS

NAMES = [check.__name__ for check in CHECKS]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    program = [sys.executable, "-m", "tests.kernels.sharded"]
    ranks = [
        subprocess.Popen(
            [*program, str(rank), str(folder)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=Path(__file__).parents[2],
        )
        for rank in range(RANKS)
    ]
    try:
        for process in ranks:
            process.wait(timeout=300)
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(RANKS)]


@pytest.mark.slow
@pytest.mark.parametrize("check", NAMES)
def test_two_processes(check, found):
    for rank, results in enumerate(found):
        assert check in results, f"rank {rank} stopped at {list(results)[-1:]}"
        assert results[check] is None, f"rank {rank}: {results[check]}"
