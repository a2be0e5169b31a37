"""Ranks: parts that meet the oracle of all classes, their own checks, and those of several GPUs."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, distributed

from losscli import sharded
from losscli.implementations.requests import Answer
from losscli.losses import LOSS
from tests.gradients import assert_right
from tests.parameters import naming

from .cases import CASES, DTYPES_OF, RANKS, cases_of, class_dimension, problem_of
from .gpus import CHECKS, MOST_RANKS
from .started import outcomes


@pytest.mark.parametrize(
    ("count", "dtype"), [(count, dtype) for count, dtypes in DTYPES_OF.items() for dtype in dtypes]
)
def test_ranks_meet_the_oracle(count, dtype, found):
    names = [name for name in cases_of(count) if CASES[name].dtype == dtype]
    assert len(names) > 20
    for name in names:
        with naming(name):
            for rank, of_rank in enumerate(found[count]):
                assert name in of_rank["cases"], f"rank {rank}: {of_rank.get('raised')}"
            assert_oracle_is_met(name, [of_rank["cases"][name] for of_rank in found[count]])


def assert_oracle_is_met(name: str, answers: list[dict[str, Tensor]]) -> None:
    problem = problem_of(CASES[name])
    gradients: dict[str, Any] = {}
    for operand in answers[0]:
        parts = [answer[operand] for answer in answers]
        dim = None if operand == LOSS else class_dimension(problem.case, operand)
        if dim is None:
            assert all(torch.equal(part, parts[0]) for part in parts[1:])
        gradients[operand] = parts[0] if dim is None else torch.cat(parts, dim)
    answer = Answer(gradients.pop(LOSS), gradients)
    assert_right(problem, answer, replace(problem.usual, wrt=tuple(gradients)))


@pytest.mark.parametrize("count", RANKS)
def test_all_ranks_pass_each_check(count, found):
    """Not imported here: the checks import what takes seconds."""
    for rank, of_rank in enumerate(found[count]):
        assert not of_rank.get("raised"), f"rank {rank}: " + "\n".join(of_rank["raised"])
        assert len(of_rank["checks"]) >= 16


@pytest.mark.parametrize("rank", [0, 1])
def test_checks_find_each_mistake_over_ranks_and_pass_what_is_right(rank, mistakes):
    """The checks that find them: the whole self-test is `losscli self-test checks --ranks 2`."""
    assert mistakes[rank]["first to fail"] == {
        "wrong:smoothing alone": "value",
        "wrong:no maximum": "extreme_values",
        "wrong:maximum alone": "value",
        "wrong:sum alone": "value",
        "wrong:softmax alone": "input_gradient",
        "wrong:target off": "value",
        "wrong:share counted": "value",
        "reference": "",
        "legitimate:three collectives": "",
    }
    of_custom = mistakes[rank]["custom"]
    assert "does not run over ranks" in of_custom.pop("memory")
    assert of_custom == dict.fromkeys(
        ("value", "input_gradient", "retain_graph", "out_of_range_classes"), "pass"
    )


@pytest.mark.slow
def test_compiled_programs_are_told_to_leave_the_loss_out(tmp_path):
    distributed.init_process_group("gloo", f"file://{tmp_path}/meeting", rank=0, world_size=1)
    try:
        x, target = torch.randn(5, 7), torch.arange(5)
        expected = sharded.cross_entropy(x, target)
        compiled = torch.compile(lambda x: sharded.cross_entropy(x * 1, target), backend="eager")
        with pytest.raises(NotImplementedError, match=r"torch\.compiler\.disable"):
            compiled(x)
        left_out = torch.compiler.disable(sharded.cross_entropy)
        found = torch.compile(lambda x: left_out(x * 1, target) + 0, backend="eager")(x)
        torch.testing.assert_close(found, expected)
    finally:
        distributed.destroy_process_group()


@pytest.fixture(scope="module")
def of_gpus(tmp_path_factory):
    ranks = min(torch.cuda.device_count(), MOST_RANKS)
    if ranks < 2:
        pytest.skip("needs two GPUs")
    return outcomes("tests.sharded.gpus", ranks, tmp_path_factory.mktemp("gpus"))


@pytest.mark.gpu
@pytest.mark.parametrize("check", [check.__name__ for check in CHECKS])
def test_all_gpus_pass(check, of_gpus):
    assert [of_rank.get(check, "was not reached") for of_rank in of_gpus] == [""] * len(of_gpus)
