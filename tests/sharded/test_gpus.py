"""Several GPUs: a rank on each checks graphs, streams, models in parallel; see gpus.py."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from .gpus import CHECKS, MOST_RANKS


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    ranks = min(torch.cuda.device_count(), MOST_RANKS)
    if ranks < 2:
        pytest.skip("needs two GPUs")
    folder = tmp_path_factory.mktemp("gpus")
    subprocess.run(
        [sys.executable, "-m", "tests.sharded.gpus", str(folder)],
        cwd=Path(__file__).parents[2],
        check=False,
        timeout=600,
    )
    return [torch.load(folder / f"{rank}.pt") for rank in range(ranks)]


@pytest.mark.gpu
@pytest.mark.parametrize("check", [check.__name__ for check in CHECKS])
def test_all_gpus_pass(check, found):
    assert [of_rank.get(check, "was not reached") for of_rank in found] == [""] * len(found)
