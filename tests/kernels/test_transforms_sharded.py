"""DTensors, FSDP2 and DDP: two processes get the losses and gradients of one."""

import pytest

from tests.sharded.started import outcomes

from .sharded import CHECKS, RANKS


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return outcomes("tests.kernels.sharded", RANKS, tmp_path_factory.mktemp("ranks"))


@pytest.mark.slow
@pytest.mark.parametrize("check", [check.__name__ for check in CHECKS])
def test_two_processes(check, found):
    assert [of_rank.get(check, "was not reached") for of_rank in found] == [""] * RANKS
