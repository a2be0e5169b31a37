"""The loss and the gradients of ranks, put together, meet the oracle of all classes.

By the tolerances of the losses of one device: losscli/truth/tolerances.py.
"""

import pytest
import torch
from torch import Tensor

from losscli.losses import LOSS
from losscli.runs.records import FAIL
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
    loss = answers[0][LOSS]
    assert all(torch.equal(answer[LOSS], loss) for answer in answers[1:])
    verdict, _ = problem.judge_loss(loss)
    assert verdict.status != FAIL, verdict.reason
    for operand in answers[0].keys() - {LOSS}:
        parts = [answer[operand] for answer in answers]
        dim = class_dimension(problem.case, operand)
        if dim is None:
            assert all(torch.equal(part, parts[0]) for part in parts[1:])
        gradient = parts[0] if dim is None else torch.cat(parts, dim)
        verdict, _ = problem.judge_gradient(operand, gradient, problem.usual)
        assert verdict.status != FAIL, f"gradient of {operand}: {verdict.reason}"
