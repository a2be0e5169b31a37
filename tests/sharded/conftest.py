"""What the ranks found, of all numbers of ranks: they are started once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from .cases import RANKS

Found = dict[int, list[dict[str, Any]]]


@pytest.fixture(scope="session")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    """Return what each rank found, by the number of ranks."""
    folder = tmp_path_factory.mktemp("ranks")
    done = subprocess.run(
        [sys.executable, "-m", "tests.sharded.ranks", str(folder)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return {
        count: [torch.load(folder / f"{count}-{rank}.pt") for rank in range(count)]
        for count in RANKS
    }
