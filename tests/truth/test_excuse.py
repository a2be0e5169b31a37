"""What a wrong result is excused by: PyTorch's own formula, as wrong in results of the size."""

import math

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


def status_of(result, values, torchs, **options):
    def truths():
        return [Truth(whole(values.shape), values)]

    def judge(errors):
        return judge_elements(errors, None)

    outcome = judge(compare(result, truths()))
    assert outcome.status == FAIL
    return excused(outcome, result, truths, [torchs], judge, noisy=True, **options).status


@pytest.mark.parametrize(
    ("count", "lost", "status"), [(1001, 3, WARN), (1001, 5, FAIL), (3, 50, WARN), (3, 200, FAIL)]
)
def test_the_smallest_result_may_be_as_wrong_as_others_are(count, lost, status):
    values = VALUES[:count]
    torchs = (values + CANCELLED).float()
    torchs[0] = values[0].float()  # right, by luck
    result = values.float()
    result[0] = -lost * CANCELLED

    assert status_of(result, values, torchs) == status


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("torchs_ulp", "ulp", "count", "status"),
    [(3, 5, 1, WARN), (3, 7, 1, FAIL), (1, 5, 1, FAIL), (3, 5, 10, WARN), (3, 5, 20, FAIL)],
)
def test_a_few_results_may_be_twice_as_far_off_as_torchs(torchs_ulp, ulp, count, status, dtype):
    values = torch.linspace(1, 1.9, 1000).to(dtype).double()
    torchs, result = values.to(dtype), values.to(dtype)
    torchs[500] += torchs_ulp * torch.finfo(dtype).eps
    result[:count] += ulp * torch.finfo(dtype).eps

    assert status_of(result, values, torchs) == status


@pytest.mark.parametrize(
    ("dtype", "ulp", "status"),
    [(torch.float16, 70, WARN), (torch.float16, 90, FAIL), (torch.float32, 90, WARN)],
)
def test_luck_explains_no_wrong_digits_of_16_bits_beyond_a_bound(dtype, ulp, status):
    values = torch.full((1,), 1.0).double()
    one = torch.finfo(dtype).eps
    torchs, result = ((values + each * one).to(dtype) for each in (5, ulp))

    assert status_of(result, values, torchs) == status


def test_torchs_results_of_16_bits_are_wrong_from_the_bar_of_the_result_on():
    values = torch.linspace(1, 1.9, 1000).half().double()
    torchs, result = values.half(), values.half()
    torchs[500] += 2 * torch.finfo(torch.float16).eps
    result[:100] += 6 * torch.finfo(torch.float16).eps

    assert status_of(result, values, torchs) == FAIL
    assert status_of(result, values, torchs, bar=1.0) == WARN


@pytest.mark.parametrize(
    ("truth", "got"), [(math.nan, 0.0), (math.nan, math.inf), (math.inf, 0.0), (math.inf, math.nan)]
)
def test_a_wrong_value_at_nan_or_infinity_is_not_excused_by_roundings_elsewhere(truth, got):
    values = torch.linspace(1, 1.9, 1000).float().double()
    values[3] = truth
    torchs, result = values.float(), values.float()
    torchs[500] += 3 * torch.finfo(torch.float32).eps
    result[3] = got

    assert status_of(result, values, torchs) == FAIL
