"""The check of sizes around powers of two."""

from __future__ import annotations

import pytest
import torch

from losscli.runs.records import FAIL
from losscli.verify.selftest.surgery import graft
from tests.verify.judging import judge, reference

CHECKS = ("sizes",)


def without_tail_of_one(case, input, target):
    """Drops the last element where all others fill groups of 64."""
    elements = reference(case, input, target, reduction="none")
    if len(elements) % 64 != 1:
        return reference(case, input, target)
    return graft(elements[:-1].sum() / len(elements), reference(case, input, target))


def zero_for_nothing(case, input, target):
    return torch.nan_to_num(reference(case, input, target))


def twice_a_power_of_two(case, input, target):
    loss = reference(case, input, target)
    return 2 * loss if len(input) == 256 else loss


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (without_tail_of_one, "Wrong at 1, 65, 129, 257"),
        (zero_for_nothing, "0 elements, loss: "),
        (twice_a_power_of_two, "256 elements, "),
    ],
)
def test_mistake_at_a_size_fails(make_case, wrong, named):
    (result,) = judge(make_case("mse"), wrong, checks=CHECKS)

    assert result.status == FAIL
    assert named in result.reason
