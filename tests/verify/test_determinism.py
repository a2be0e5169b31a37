"""Implementations whose results change from run to run."""

import itertools
from functools import partial

import pytest
import torch

from losscli.runs.records import FAIL, PASS, WARN
from losscli.truth.fingerprint import same_bits
from losscli.verify.selftest.surgery import graft, regrade
from tests.verify.judging import reference, result_of

put = partial(result_of, "determinism")


def changing(factor):
    """Return a loss whose every third value, from the second on, is off by a factor."""
    runs = itertools.count()

    def loss(case, input, target):
        value = reference(case, input, target)
        off = factor if next(runs) % 3 == 1 else 1.0
        return graft(value.detach() * off, value)

    return loss


def changing_gradient(factor):
    """Return a loss whose gradients are off by a factor in every second run."""
    runs = itertools.count()

    def loss(case, input, target):
        off = factor if next(runs) % 2 else 1.0
        return regrade(reference(case, input, target), lambda g: g * off)

    return loss


def test_a_spread_within_the_tolerance_is_a_warning_with_the_spread_and_a_hint(make_case):
    result = put(make_case("mse"), changing(1 + 2**-23))

    assert result.status == WARN
    assert "differ in the loss by up to 1 ulp" in result.reason
    assert "atomics" in result.reason


def missing_gradient():
    """Return a loss that has no gradient of the target in every second run."""
    runs = itertools.count()

    def loss(case, input, target):
        return reference(case, input, target.detach() if next(runs) % 2 else target)

    return loss


@pytest.mark.parametrize(
    ("function", "reduction", "reason"),
    [
        (changing(1.001), "mean", "run 2 differs from run 1, loss: expected 0."),
        (changing_gradient(1.001), "none", "gradient: expected "),
        (missing_gradient(), "mean", "target gradient"),
    ],
)
def test_a_spread_beyond_the_tolerance_fails(make_case, function, reduction, reason):
    result = put(make_case("mse", reduction=reduction), function)

    assert result.status == FAIL
    assert reason in result.reason


def test_deterministic_wrong_result_passes_determinism(make_case):
    assert put(make_case("mse"), lambda case, x, y: 2 * reference(case, x, y)).status == PASS


def test_determinism_compares_bits_of_nan_and_signed_zero():
    nan, zero = torch.tensor([1.0, torch.nan]), torch.zeros(3)

    assert same_bits(nan, nan.clone())
    assert not same_bits(zero, -zero)
    assert not same_bits(zero, zero.double())
    assert not same_bits(zero, None)
    assert same_bits(None, None)
    assert same_bits(torch.ones(4, 6).t(), torch.ones(6, 4))


def test_determinism_makes_twenty_calls(make_case):
    runs = itertools.count(1)
    seen = []

    def loss(case, input, target):
        seen.append(next(runs))
        return reference(case, input, target)

    assert put(make_case("mse"), loss).status == PASS
    assert seen[-1] == 20


def test_an_order_that_changes_only_where_threads_share_a_sum_is_found(make_case):
    """The noise of atomic additions of a kernel that gives a small case to one thread."""
    runs = itertools.count()

    def loss(case, input, target):
        value = reference(case, input, target)
        parts = input.numel() // 2**14
        off = 1 + 2.0**-23 if parts > 1 and next(runs) % 2 else 1.0
        return graft(value.detach() * off, value)

    result = put(make_case("mse"), loss)

    assert (result.status, "differ in the loss" in result.reason) == (WARN, True)
