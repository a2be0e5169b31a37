"""The loss and the gradients of ranks, put together, meet the oracle of all classes.

By the tolerances of the losses of one device: losscli/truth/tolerances.py.
"""

from __future__ import annotations

import pytest
import torch

from losscli.losses import LOSS
from losscli.runs.records import FAIL

from .cases import CASES, RANKS, cases_of, class_dimension, problem_of
from .conftest import Found


@pytest.mark.parametrize(
    ("count", "name"), [(count, name) for count in RANKS for name in cases_of(count)]
)
def test_ranks_meet_the_oracle(count: int, name: str, found: Found) -> None:
    problem = problem_of(CASES[name])
    answers = []
    for rank, of_rank in enumerate(found[count]):
        assert name in of_rank["cases"], f"rank {rank}: {of_rank.get('raised')}"
        answers.append(of_rank["cases"][name])

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
