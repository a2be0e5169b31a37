"""Several GPUs: a rank on each checks graphs, streams, models in parallel; see gpus.py."""

import pytest
import torch

from .gpus import CHECKS, MOST_RANKS
from .started import outcomes


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    ranks = min(torch.cuda.device_count(), MOST_RANKS)
    if ranks < 2:
        pytest.skip("needs two GPUs")
    return outcomes("tests.sharded.gpus", ranks, tmp_path_factory.mktemp("gpus"))


@pytest.mark.gpu
@pytest.mark.parametrize("check", [check.__name__ for check in CHECKS])
def test_all_gpus_pass(check, found):
    assert [of_rank.get(check, "was not reached") for of_rank in found] == [""] * len(found)
