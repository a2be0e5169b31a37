"""Soft margin (logistic) loss for targets of -1 and 1."""

from __future__ import annotations

from losscli.machine.pytorch import Tensor, torch

from .. import aten
from ..calling import Arguments, Calls, reduction_of
from ..domain import SIGNS
from ..fields import LOSS, Operand, Terms
from ..formulas import alike, product, reduce
from ..making import element_loss
from ..shapes import ONTO_INPUT

FAR = 40.0
"""The product from which ``exp(-product)`` or ``-product`` is the loss even in float64."""


def _elements(input: Tensor, target: Tensor) -> Tensor:
    """PyTorch's formula, finite for any finite operands."""
    product = input * target
    far = product.abs() > FAR
    inside = torch.where(far, torch.zeros_like(product), product)
    # Its gradient has one rounding less than logsigmoid's.
    near = torch.logaddexp(-inside, torch.zeros_like(inside))
    beyond = torch.where(product > 0, torch.exp(-product.clamp(min=0)), -product)
    return torch.where(far, beyond, near)


def _terms(input: Tensor, target: Tensor) -> dict[str, Tensor]:
    product = input * target
    # ``e^p`` of a rounded ``p`` is off by up to ``|p|`` ulp, of which the tolerance has 4.
    more = 1 + torch.where(target.abs() == 1, 0.0, product.abs() / 4)
    loss, slope = aten.softplus(-product) * more, torch.sigmoid(-product) * more
    return {LOSS: loss, "input": slope * target.abs(), "target": slope * input.abs()}


def _functional(input: Tensor, target: Tensor, *, reduction: str) -> Tensor:
    """PyTorch's function, or its formula for a gradient for the target."""
    input, target = alike(input, target)
    if not target.requires_grad:
        return aten.soft_margin_loss(input, target, reduction=reduction)
    return reduce(torch.log1p(torch.exp(-target * input)), reduction)


def soft_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Arguments:
    """Soft margin (logistic) loss, as torch.nn.functional.soft_margin_loss.

    ``log(1 + exp(-input * target))``, without overflow: where PyTorch's is infinite, this is
    ``-input * target``. Unlike PyTorch's, it has a gradient for the target. Targets are not
    checked.
    """
    return Arguments((input, target), reduction_of(reduction, size_average, reduce), (), weight)


SPEC = element_loss(
    soft_margin_loss,
    "SoftMarginLoss",
    calls=Calls("soft_margin", shapes=ONTO_INPUT),
    formula="log(1 + exp(-x * y))",
    operands=(
        Operand("input", "logits"),
        Operand("target", "labels", domain=SIGNS, torch_differentiates=False),
    ),
    elements=_elements,
    functional=_functional,
    branch_coordinate=product,
    temporaries=10,
    terms=Terms(_terms, "the exponential of input * target multiplies the rounding of the product"),
)
