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

    def truths():
        return [Truth(whole(values.shape), values)]

    def judge(errors):
        return judge_elements(errors, None)

    outcome = judge(compare(result, truths()))
    assert outcome.status == FAIL
    assert excused(outcome, result, truths, [torchs], judge, noisy=True).status == status
