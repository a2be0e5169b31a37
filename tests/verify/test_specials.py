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


def test_overflow_that_torch_shares_is_no_worse_than_torch_unless_held_to_the_oracle(make_case):
    case, reference = make_case("mse", dtype="float16"), find_implementation("reference")
    for implementation in (reference, find_implementation("functional")):
        (result,) = put(case, implementation, checks=CHECKS)
        assert (result.status, result.code) == (WARN, "same_error_as_pytorch")
        assert result.told.startswith(
            "same error as PyTorch: a number whose square is out of range"
        )
    (held,) = put(case, replace(reference, held_to_oracle=True), checks=CHECKS)
    assert (held.status, held.code) == (FAIL, "wrong")


def test_mistake_beyond_those_of_torch_is_not_excused(make_case):
    """Where a square is out of range it is as wrong as torch; with NaN it is wrong by itself."""
    (result,) = judge(make_case("mse", dtype="float16"), "NaN scrubbed", checks=("special_values",))
    assert (result.status, result.code) == (FAIL, "known_limitation")
    assert "NaN in the input" in result.reason


def test_a_wrong_result_of_pytorchs_own_function_is_a_warning_in_every_check(make_case):
    """``exp(3072)`` is infinite in torch's soft margin, on the way to a loss of 3072."""
    case = make_case("soft_margin", shape=(7, 7), reduction="none")
    own = find_implementation("functional")
    (result,) = put(case, own, checks=("coverage",))
    (held,) = put(case, replace(own, torchs_own=False), checks=("coverage",))
    assert (result.status, result.code) == (WARN, "same_error_as_pytorch")
    assert (held.status, held.code) == (FAIL, "wrong")
    assert "expected 3072, got inf" in result.reason == held.reason


def without_tail_of_one(case, input, target):
    """Drops the last element where all others fill groups of 64."""
    elements = reference(case, input, target, reduction="none")
    if len(elements) % 64 != 1:
        return reference(case, input, target)
    return graft(elements[:-1].sum() / len(elements), reference(case, input, target))


def zero_for_nothing(case, input, target):
    return torch.nan_to_num(reference(case, input, target))


def a_line_is_not_written(case, input, target):
    loss = reference(case, input, target)
    if loss.numel() < 2**20:
        return loss
    short = loss.detach().clone()
    short[2**20 : 2**20 + 16] = 0
    return graft(short, loss)


def doubled_where(is_wrong):
    """Return an implementation that is wrong for some shapes of input and target."""

    def wrong(case, input, target):
        loss = reference(case, input, target)
        return 2 * loss if is_wrong(tuple(input.shape), tuple(target.shape)) else loss

    return wrong


@pytest.mark.parametrize(
    ("check", "reduction", "wrong", "named"),
    [
        ("boundary_sizes", "mean", without_tail_of_one, "Wrong at 1, 65, 129, 257"),
        ("boundary_sizes", "mean", zero_for_nothing, "0 elements, loss: "),
        ("boundary_sizes", "mean", doubled_where(lambda x, y: x[0] == 256), "256 elements, "),
        (
            *("broadcasts", "mean"),
            doubled_where(lambda x, y: len(y) == 1 and 1024 < y[0] < 2048),
            "with (5, 1025) with (1025,); (5, 1500) with (1500,)",
        ),
        ("broadcasts", "mean", doubled_where(lambda x, y: y == (4,)), "(100, 4) with (4,), "),
        (
            *("broadcasts", "mean", doubled_where(lambda x, y: y == (40, 1, 1))),
            "(40, 5, 7) with (40, 1, 1), ",
        ),
        (
            *("broadcasts", "mean", doubled_where(lambda x, y: x == (5, 1))),
            "(5, 1) with (40, 5, 7), ",
        ),
        ("large_outputs", "none", a_line_is_not_written, "repeat 255 of 2047, loss: expected "),
    ],
)
def test_mistake_at_a_size_fails(make_case, check, reduction, wrong, named):
    (result,) = judge(make_case("mse", reduction=reduction), wrong, checks=(check,))
    assert result.status == FAIL
    assert named in result.reason


def test_pytorchs_float32_sums_pass_broadcasts(make_case):
    (result,) = judge(make_case(), lambda *given: reference(*given), checks=("broadcasts",))
    assert result.status == WARN
    assert "a careful sum stays within" in result.reason
