"""What a loss's spec says, and what of it is checked where it is written."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from losscli import losses
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


@pytest.mark.parametrize("spec", LOSSES.values(), ids=LOSSES)
def test_a_loss_offers_its_functions_and_its_module_from_its_own_file(spec) -> None:
    from losscli import functional, nn

    assert spec.loss is getattr(functional, f"{spec.name}_loss")
    assert spec.loss_with_grad is getattr(functional, f"{spec.name}_loss_with_grad")
    assert issubclass(getattr(nn, spec.module.__name__), spec.module)
    assert {f.__module__ for f in (spec.loss, spec.loss_with_grad, spec.module)} == {
        f"losscli.losses.{spec.name}"
    }


def test_a_file_with_a_spec_is_a_loss() -> None:
    folder = Path(losses.__file__).parent
    assert set(LOSSES) == {p.stem for p in folder.glob("*.py") if "\nSPEC = " in p.read_text()}
