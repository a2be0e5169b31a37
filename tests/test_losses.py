"""What a loss's spec says, and what of it is checked where it is written."""

from __future__ import annotations

import math

import pytest

from losscli.losses import LOSSES, Tolerance


@pytest.mark.parametrize("spec", LOSSES.values(), ids=LOSSES)
def test_operands_have_names_of_their_own_and_the_first_a_gradient(spec) -> None:
    names = [operand.name for operand in spec.operands]
    assert len(set(names)) == len(names)
    assert spec.operands[0].differentiable


@pytest.mark.parametrize(
    ("factor", "reason"), [(0.5, "why"), (math.inf, "why"), (math.nan, "why"), (2.0, "")]
)
def test_a_tolerance_loosens_and_says_why(factor: float, reason: str) -> None:
    with pytest.raises(ValueError, match="tolerance"):
        Tolerance(factor, reason)
    assert Tolerance(2.0, "the logarithm of a sum cancels").factor == 2.0
