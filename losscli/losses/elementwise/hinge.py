"""Hinge loss for targets of -1 and 1."""

from __future__ import annotations

import math

from losscli.machine.pytorch import Tensor

from ..calling import Arguments
from ..domain import SIGNS
from ..fields import Operand, Parameter, last_dimension
from ..formulas import fixed, product, reduced
from ..making import element_loss


def hinge_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    margin: float = 1.0,
    weight: Tensor | None = None,
) -> Arguments:
    """Hinge loss for targets of -1 and 1: ``clamp(margin - input * target, min=0)``.

    Where ``input * target == margin``, the gradient passes, as in ``torch.clamp``. Targets are not
    checked.
    """
    return Arguments((input, target), reduction, (margin,), weight)


SPEC = element_loss(
    hinge_loss,
    "HingeLoss",
    formula="max(margin - x * y, 0)",
    operands=(
        Operand("input", "predictions"),
        Operand("target", "labels", shape=last_dimension, domain=SIGNS),
    ),
    parameters=(
        Parameter("margin", 1.0, -math.inf, "input * target from which the loss is 0", 1.3),
    ),
    reference=reduced(lambda input, target, margin: (margin - input * target).clamp(min=0)),
    kinks=lambda parameters: (parameters["margin"],),
    branch_coordinate=product,
    branches=fixed(("linear", "clamped")),
)
