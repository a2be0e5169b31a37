"""Binary cross entropy of logits with a weight for positive targets."""

from __future__ import annotations

from losscli.machine.pytorch import Tensor, torch

from .. import aten
from ..calling import Arguments
from ..domain import POSITIVE, PROBABILITIES
from ..fields import Operand, Terms, Tolerance, last_dimension
from ..formulas import alike, prediction, reduce
from ..making import element_loss


def _elements(input: Tensor, target: Tensor, pos_weight: Tensor) -> Tensor:
    """PyTorch's formula, but nothing cancels in the loss."""
    positive = pos_weight * (target * -aten.logsigmoid(input))
    return positive - (1 - target) * aten.logsigmoid(-input)


def _functional(input: Tensor, target: Tensor, pos_weight: Tensor, *, reduction: str) -> Tensor:
    """PyTorch's function, or its formula for a gradient for ``pos_weight``."""
    input, target, pos_weight = alike(input, target, pos_weight)
    if not pos_weight.requires_grad:
        return aten.binary_cross_entropy_with_logits(
            input, target, pos_weight=pos_weight, reduction=reduction
        )
    of_positive, of_negative = aten.softplus(-input), aten.softplus(input)
    return reduce(pos_weight * target * of_positive + (1 - target) * of_negative, reduction)


def _terms(input: Tensor, target: Tensor, pos_weight: Tensor) -> dict[str, Tensor]:
    of_positive = pos_weight * (target * torch.sigmoid(-input))
    of_negative = (1 - target) * torch.sigmoid(input)
    costs = -pos_weight * aten.logsigmoid(input), -aten.logsigmoid(-input)
    return {
        "input": torch.maximum(of_positive.abs(), of_negative.abs()),
        "target": torch.maximum(costs[0].abs(), costs[1]),
    }


def binary_cross_entropy_with_pos_weight(
    input: Tensor,
    target: Tensor,
    pos_weight: Tensor,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Arguments:
    """:func:`binary_cross_entropy_with_logits` with a differentiable ``pos_weight``.

    ``pos_weight * target * softplus(-input) + (1 - target) * softplus(input)``.

    Args:
        pos_weight: multiplies the loss of positive targets; broadcastable with both, so (C,) has
            one value per column.
    """
    return Arguments((input, target, pos_weight), reduction, (), weight)


SPEC = element_loss(
    binary_cross_entropy_with_pos_weight,
    "BCEWithPosWeightLoss",
    formula="pos_weight * y * log(1 + exp(-x)) + (1 - y) * log(1 + exp(x))",
    operands=(
        Operand("input", "logits"),
        Operand("target", "probabilities, or labels 0 and 1", domain=PROBABILITIES),
        Operand(
            "pos_weight",
            "weights of label 1",
            shape=last_dimension,
            domain=POSITIVE,
            torch_differentiates=False,
        ),
    ),
    form_of="binary_cross_entropy_with_logits",
    elements=_elements,
    functional=_functional,
    branch_coordinate=prediction,
    temporaries=10,
    tolerance=Tolerance(1.5, "the weight of label 1 adds two roundings to the four of an element"),
    terms=Terms(_terms, "its gradients are differences of what labels 1 and 0 contribute"),
)
