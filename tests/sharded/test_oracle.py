"""The loss and the gradients of ranks, put together, meet the oracle of all classes.

By the tolerances of the losses of one device: losscli/truth/tolerances.py.
"""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from losscli.implementations.requests import Answer
from losscli.losses import LOSS
from tests.gradients import assert_right
from tests.parameters import naming

from .cases import CASES, DTYPES_OF, cases_of, class_dimension, problem_of


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
    gradients = {}
    for operand in answers[0]:
        parts = [answer[operand] for answer in answers]
        dim = None if operand == LOSS else class_dimension(problem.case, operand)
        if dim is None:
            assert all(torch.equal(part, parts[0]) for part in parts[1:])
        gradients[operand] = parts[0] if dim is None else torch.cat(parts, dim)
    answer = Answer(gradients.pop(LOSS), gradients)
    assert_right(problem, answer, replace(problem.usual, wrt=tuple(gradients)))
