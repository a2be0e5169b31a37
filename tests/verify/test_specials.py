"""The check of values at the ends of a dtype's range."""

from dataclasses import replace

import pytest
import torch

from losscli.implementations import find_implementation
from losscli.runs.records import FAIL, PASS, WARN
from losscli.verify.selftest.surgery import graft, regrade
from tests.verify.judging import judge, put, reference

CHECKS = ("special_values",)


def clamped(case, input, target):
    return graft(reference(case, input, target).clamp(max=1e30), reference(case, input, target))


def expanded_square(case, input, target):
    """The formula x^2 - 2 x y + y^2, whose parts overflow where the difference is small."""
    return (input**2 - 2 * input * target + target**2).mean()


def flushed(case, input, target):
    tiny = torch.finfo(input.dtype).tiny
    value = reference(case, input * (input.abs() >= tiny), target)
    return graft(value, reference(case, input, target))


def zero_gradient_at_infinity(case, input, target):
    return reference(case, regrade(input, lambda g: g * input.isfinite()), target)


@pytest.mark.parametrize(
    ("wrong", "case", "named"),
    [
        ("NaN scrubbed", {}, "NaN in the input"),
        (clamped, {"loss": "mse"}, "infinity in the input"),
        (expanded_square, {"loss": "mse"}, "a number whose square is out of range in both"),
        (
            flushed,
            {"loss": "hinge", "params": {"margin": 0.0}, "reduction": "none"},
            "subnormal number in the input",
        ),
        (zero_gradient_at_infinity, {}, "infinity in the input"),
    ],
)
def test_mistake_at_the_ends_of_a_dtype_fails(make_case, wrong, case, named):
    (result,) = judge(make_case(**{"distribution": "normal", **case}), wrong, checks=CHECKS)

    assert result.status == FAIL
    assert named in result.reason


def test_any_gradient_passes_where_pytorchs_is_nan(make_case):
    def other(case, input, target):
        without = regrade(input, lambda g: torch.where(g.isnan(), 0.25, g))
        return reference(case, without, target)

    (result,) = judge(make_case("mse"), other, checks=CHECKS)

    assert result.status == PASS


def test_overflow_that_torch_shares_is_no_worse_than_torch(make_case):
    case = make_case("mse", dtype="float16")

    for name in ("reference", "functional"):
        (result,) = put(case, find_implementation(name), checks=("special_values",))

        assert (result.status, result.code) == (WARN, "no_worse_than_torch")
        assert result.told.startswith("no worse than torch: a number whose square is out of range")


def test_implementation_held_to_the_oracle_gets_no_excuse(make_case):
    own = replace(find_implementation("reference"), held_to_oracle=True)

    (result,) = put(make_case("mse", dtype="float16"), own, checks=("special_values",))

    assert (result.status, result.code) == (FAIL, "wrong")


def test_mistake_beyond_those_of_torch_is_not_excused(make_case):
    """Where a square is out of range it is as wrong as torch; with NaN it is wrong by itself."""
    (result,) = judge(make_case("mse", dtype="float16"), "NaN scrubbed", checks=("special_values",))

    assert (result.status, result.code) == (FAIL, "limited")
    assert "NaN in the input" in result.reason


def test_a_wrong_result_of_pytorchs_own_function_is_a_warning_in_every_check(make_case):
    """``exp(3072)`` is infinite in torch's soft margin, on the way to a loss of 3072."""
    case = make_case("soft_margin", shape=(7, 7), reduction="none")
    own = find_implementation("functional")

    (result,) = put(case, own, checks=("coverage",))
    (held,) = put(case, replace(own, torchs_own=False), checks=("coverage",))

    assert (result.status, result.code) == (WARN, "no_worse_than_torch")
    assert (held.status, held.code) == (FAIL, "wrong")
    assert "expected 3072, got inf" in result.reason == held.reason
