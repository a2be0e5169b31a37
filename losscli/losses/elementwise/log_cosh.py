"""Log-cosh loss."""

from __future__ import annotations

import math

from losscli.machine.pytorch import Tensor, torch

from .. import aten
from ..calling import Arguments
from ..fields import Tolerance
from ..formulas import reduced
from ..making import element_loss

FAR = 20.0
"""The difference from which ``exp(-2 * d)`` does not change the loss even in float64."""


def _elements(input: Tensor, target: Tensor) -> Tensor:
    d = input - target
    far = d.abs() > FAR
    inside = torch.where(far, torch.zeros_like(d), d)
    # Its gradient, sinh / cosh, is right everywhere; its value is not near zero.
    value = torch.log(torch.cosh(inside))
    right = 0.5 * torch.log1p(torch.sinh(inside) ** 2)
    value = torch.where(inside.abs() < 2, value + (right - value).detach(), value)
    return torch.where(far, d.abs() - math.log(2), value)


def _as_written(input: Tensor, target: Tensor) -> Tensor:
    # Small differences lose their digits.
    d = input - target
    return d + aten.softplus(-2 * d) - math.log(2)


def log_cosh_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", weight: Tensor | None = None
) -> Arguments:
    """Log-cosh loss: ``log(cosh(input - target))``.

    About ``0.5 * d**2`` for a small difference d and ``|d| - log(2)`` for a large one. The gradient
    is ``tanh(d)``.
    """
    return Arguments((input, target), reduction, (), weight)


SPEC = element_loss(
    log_cosh_loss,
    "LogCoshLoss",
    formula="log(cosh(x - y))",
    elements=_elements,
    functional=reduced(_as_written),
    tolerance=Tolerance(
        1.5, "tanh of a GPU is off by up to 2 ulp, besides four roundings of an element"
    ),
    temporaries=11,
)
