"""What the ranks found, of all numbers of ranks: they are started once, whoever runs the tests."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from losscli.processes.lock import locked

from .cases import RANKS

Found = dict[int, list[dict[str, Any]]]


@pytest.fixture(scope="session")
def found(tmp_path_factory):
    """Return what each rank found, by the number of ranks; workers of xdist wait for the first."""
    folder = _done(tmp_path_factory)
    return {
        count: [torch.load(folder / f"{count}-{rank}.pt") for rank in range(count)]
        for count in RANKS
    }


@pytest.fixture(scope="session")
def mistakes(tmp_path_factory):
    """Return what checks of verify said on each of two ranks."""
    folder = _done(tmp_path_factory)
    return [json.loads((folder / f"mistakes-{rank}.json").read_text()) for rank in range(2)]


def _done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of what the ranks found; they have ended."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "ranks"
    folder.mkdir(exist_ok=True)
    done = folder / "done"
    with (folder / "lock").open("a+") as file, locked(file, lambda _: None):
        if not done.exists():
            done.write_text(_start(folder))
    assert not done.read_text(), done.read_text()
    return folder


def _start(folder: Path) -> str:
    finished = subprocess.run(
        [sys.executable, "-m", "tests.sharded.ranks", str(folder)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=600,
    )
    return "" if finished.returncode == 0 else finished.stderr or str(finished.returncode)
