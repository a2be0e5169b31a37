"""What a wrong result is excused by: PyTorch's own formula, as wrong in results of the size."""

import pytest
import torch

from losscli.runs.records import FAIL, WARN
from losscli.truth.blocks import whole
from losscli.truth.distances import compare
from losscli.truth.excuse import excused
from losscli.truth.oracle import Truth
from losscli.truth.tolerances import judge_elements

VALUES = torch.cat([torch.tensor([1e-14]), torch.logspace(-9, 0, 1000)]).double()
CANCELLED = 3e-8
"""What a formula loses that takes 1 away from what is near 1, in float32."""


def status_of(result, values, torchs):
    """Return what becomes of a wrong result beside PyTorch's own."""

    def truths():
        return [Truth(whole(values.shape), values)]

    def judge(errors):
        return judge_elements(errors, None)

    outcome = judge(compare(result, truths()))
    assert outcome.status == FAIL
    return excused(outcome, result, truths, [torchs], judge, noisy=True).status


@pytest.mark.parametrize(
    ("count", "lost", "status"),
    [(1001, 3, WARN), (1001, 5, FAIL), (3, 50, WARN), (3, 200, FAIL)],
)
def test_the_smallest_result_may_be_as_wrong_as_others_are(count, lost, status):
    values = VALUES[:count]
    torchs = (values + CANCELLED).float()
    torchs[0] = values[0].float()  # right, by luck
    result = values.float()
    result[0] = -lost * CANCELLED

    assert status_of(result, values, torchs) == status


@pytest.mark.parametrize(
    ("torchs_ulp", "ulp", "status"), [(3, 5, WARN), (3, 7, FAIL), (1, 5, FAIL)]
)
def test_a_result_may_be_twice_as_far_off_as_torchs_roundings(torchs_ulp, ulp, status):
    values = torch.linspace(1, 1.9, 1000).float().double()
    torchs, result = values.float(), values.float()
    torchs[500] += torchs_ulp * torch.finfo(torch.float32).eps
    result[0] += ulp * torch.finfo(torch.float32).eps

    assert status_of(result, values, torchs) == status
