"""The derived tolerances, and the outcomes on each side of them."""

import math

import pytest
import torch

from losscli.runs.records import FAIL, PASS, WARN
from losscli.truth.distances import Errors
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


def test_failure_has_expected_and_actual_value_and_index():
    errors = Errors(ulp=9.0, index=(3, 1), expected=0.5, got=0.25)

    reason = judge_elements(errors).reason

    assert reason == "expected 0.5, got 0.25 at [3, 1], off by 9 ulp; allowed: 4 ulp an element"


def test_a_config_loosens_and_never_tightens():
    assert judge_elements(off(9.0), loosened=10.0).status == PASS
    assert judge_elements(off(3.0), loosened=1.0).status == PASS
    assert judge_sums(off(200.0), torch.float32, loosened=256.0).status == PASS
    assert judge_value(off(500.0, 1e-4), EXACT, torch.float32, loosened=512.0).status == PASS
    assert judge_value(off(2.0, 1e-7), EXACT, torch.float32, loosened=1.0).status == PASS


def test_float64_sums_pass_within_the_bound():
    assert judge_value(off(3.0, 6e-16), EXACT, torch.float64).status == PASS
    assert judge_value(off(130.0, 1.5e-14), EXACT, torch.float64).status == FAIL
    assert judge_sums(off(129.0), torch.float64).status == PASS
    assert judge_sums(off(130.0), torch.float64).status == FAIL


def test_numbers_are_shown_with_the_digits_that_tell_them_apart():
    reason = judge_elements(Errors(ulp=9.0, expected=0.1, got=0.1 + 9 * 2.0**-56)).reason

    assert reason.startswith("expected 0.10000000000000001, got 0.10000000000000013,")
