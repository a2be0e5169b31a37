import math

import pytest
import torch

from losscli.runs.records import FAIL, PASS, WARN
from losscli.truth.blocks import whole
from losscli.truth.distances import Errors, Truth, compare
from losscli.truth.excuse import excused
from losscli.truth.tolerances import (
    judge_elements,
    judge_sums,
    judge_value,
    sum_bound,
    unit_roundoff,
)

EXACT = Errors()


def off(ulp, relative=0.0):
    return Errors(ulp=ulp, relative=relative, expected=1.0, got=2.0)


@pytest.mark.parametrize(
    ("dtype", "roundoff", "bound"),
    [
        (torch.float32, 2.0**-24, 129 * 2.0**-24),
        (torch.float64, 2.0**-53, 129 * 2.0**-53),
        (torch.float16, 2.0**-11, 2.0**-11 + 2.0**-17),
        (torch.bfloat16, 2.0**-8, 2.0**-8 + 2.0**-17),
    ],
)
def test_the_bound_of_a_sum_is_one_rounding_and_a_walk_of_128(dtype, roundoff, bound):
    assert unit_roundoff(dtype) == roundoff
    assert sum_bound(dtype) == bound


@pytest.mark.parametrize(
    ("ulp", "status"), [(0.5, PASS), (4.0, PASS), (4.1, FAIL), (math.inf, FAIL)]
)
def test_elements_pass_within_4_ulp(ulp, status):
    assert judge_elements(off(ulp)).status == status


@pytest.mark.parametrize(
    ("dtype", "ulp", "status"),
    [
        (torch.float32, 4.0, PASS),
        (torch.float32, 128.0, WARN),
        (torch.float32, 130.0, FAIL),
        (torch.bfloat16, 4.0, PASS),
        (torch.bfloat16, 4.1, FAIL),
    ],
)
def test_sums_of_both_signs_fail_beyond_the_bound(dtype, ulp, status):
    assert judge_sums(off(ulp), dtype).status == status


@pytest.mark.parametrize(
    ("errors", "reference", "status"),
    [
        (off(2.0, 2e-7), EXACT, PASS),
        (off(3.9, 3e-7), off(1.0), PASS),
        (off(4.1, 3e-7), off(1.0), WARN),
        (off(2.1, 2e-7), EXACT, WARN),
        (off(60.0, 7e-6), off(1.0), WARN),
        # Beyond 129 * 2^-24 = 7.7e-6 no error of the reference excuses anything.
        (off(70.0, 8e-6), off(100.0), FAIL),
        (off(math.inf, math.inf), off(math.inf), FAIL),
        # A reference that overflows grants nothing.
        (off(3.0, 3e-7), off(math.inf), WARN),
    ],
)
def test_a_value_is_judged_beside_the_reference(errors, reference, status):
    assert judge_value(errors, reference, torch.float32).status == status


def test_two_ulp_pass_in_bfloat16_though_they_exceed_the_bound():
    assert judge_value(off(1.9, 0.012), EXACT, torch.bfloat16).status == PASS
    assert judge_value(off(2.1, 0.012), off(10.0), torch.bfloat16).status == FAIL


def test_warning_has_the_factor_over_torchs_error():
    outcome = judge_value(off(12.0, 1e-6), off(0.5), torch.float32)
    assert outcome.reason.endswith("less accurate than torch by 24x")


def test_failure_has_values_with_the_digits_that_tell_them_apart_and_an_index():
    errors = Errors(ulp=9.0, index=(3, 1), expected=0.5, got=0.25)
    reason = judge_elements(errors).reason
    assert reason == "expected 0.5, got 0.25 at [3, 1], off by 9 ulp; allowed: 4 ulp per element"
    reason = judge_elements(Errors(ulp=9.0, expected=0.1, got=0.1 + 9 * 2.0**-56)).reason
    assert reason.startswith("expected 0.10000000000000001, got 0.10000000000000013,")


def test_a_config_loosens_and_never_tightens():
    assert judge_elements(off(9.0), loosened=10.0).status == PASS
    assert judge_elements(off(3.0), loosened=1.0).status == PASS
    assert judge_sums(off(200.0), torch.float32, loosened=256.0).status == PASS
    assert judge_value(off(500.0, 1e-4), EXACT, torch.float32, loosened=512.0).status == PASS
    assert judge_value(off(2.0, 1e-7), EXACT, torch.float32, loosened=1.0).status == PASS


def test_float64_sums_pass_within_the_bound():
    assert judge_value(off(3.0, 6e-16), EXACT, torch.float64).status == PASS
    assert judge_value(off(130.0, 1.5e-14), EXACT, torch.float64).status == FAIL
    # A single lane that adds up 173 x 1001 numbers loses 416 roundings.
    assert judge_value(off(100.0, 1.8e-14), EXACT, torch.float64, length=173173).status == PASS
    assert judge_value(off(420.0, 4.7e-14), EXACT, torch.float64, length=173173).status == FAIL
    assert judge_value(off(60.0, 7.8e-6), EXACT, torch.float32, length=173173).status == FAIL
    assert judge_sums(off(129.0), torch.float64).status == PASS
    assert judge_sums(off(130.0), torch.float64).status == FAIL


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
