"""The checks of sizes, broadcasts and large results find what is wrong at one size alone."""

import pytest
import torch

from losscli.runs.records import FAIL, WARN
from losscli.verify.selftest.surgery import graft
from tests.verify.judging import judge, reference


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


def test_bulk_does_not_apply_to_sums(make_case):
    assert judge(make_case(), reference, checks=("large_outputs",)) == []
