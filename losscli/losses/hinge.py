"""Hinge loss for targets of -1 and 1."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from .reduction import reduce
from .spec import LossSpec, Operand, Parameter, last_dimension

if TYPE_CHECKING:
    from torch import Tensor


def reference(input: Tensor, target: Tensor, *, reduction: str, margin: float) -> Tensor:
    """The formula as a person writes it in PyTorch; the gradient passes at the kink, as clamp's."""
    import torch

    return reduce(torch.clamp(margin - input * target, min=0), reduction)


def kinks(parameters: Mapping[str, float]) -> tuple[float, ...]:
    """The derivative jumps where input * target reaches the margin."""
    return (parameters["margin"],)


def branches(parameters: Mapping[str, float]) -> tuple[str, ...]:
    """Short of the margin it costs, beyond it is clamped."""
    return ("linear", "clamped")


def branch_coordinate(input: Tensor, target: Tensor) -> Tensor:
    """The product decides."""
    return input * target


SPEC = LossSpec(
    name="hinge",
    formula="max(margin - x * y, 0)",
    operands=(Operand("input", "predictions"), Operand("target", "of -1 or 1")),
    parameters=(
        Parameter("margin", 1.0, -math.inf, "how far on its side a prediction is to lie", 1.3),
    ),
    reference=reference,
    functional=None,
    default_target_shape=last_dimension,
    kinks=kinks,
    branch_coordinate=branch_coordinate,
    branches=branches,
    sign_targets=True,
)
