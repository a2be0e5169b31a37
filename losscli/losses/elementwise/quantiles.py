"""Quantile (pinball) loss with a quantile for each element."""

from __future__ import annotations

from losscli.machine.pytorch import Tensor, torch

from ..calling import Arguments
from ..domain import PROBABILITIES
from ..fields import Operand, last_dimension
from ..formulas import KINK_AT_ZERO, LINEAR_ON_BOTH_SIDES, reduced
from ..making import OPERANDS, element_loss


def elements(input: Tensor, target: Tensor, quantile: Tensor | float) -> Tensor:
    """The formula; the gradient at the kink is the mean of both sides."""
    d = target - input
    below = torch.where(d < 0, (quantile - 1) * d, (quantile - 0.5) * d)
    return torch.where(d > 0, quantile * d, below)


def as_written(input: Tensor, target: Tensor, quantile: Tensor | float) -> Tensor:
    """The formula as usually written; subnormal differences count as zero."""
    d = target - input
    return torch.maximum(quantile * d, (quantile - 1) * d)


def quantiles_loss(
    input: Tensor,
    target: Tensor,
    quantile: Tensor,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Arguments:
    """:func:`quantile_loss` with a quantile for each element.

    Args:
        quantile: the quantiles to predict; broadcastable with both, so (K,) has one for each
            column. Differentiable; the values are not checked, and the dtype is promoted with the
            others.
    """
    return Arguments((input, target, quantile), reduction, (), weight)


SPEC = element_loss(
    quantiles_loss,
    "QuantilesLoss",
    formula="max(quantile * (y - x), (quantile - 1) * (y - x))",
    operands=(
        *OPERANDS,
        Operand("quantile", "quantiles", shape=last_dimension, domain=PROBABILITIES),
    ),
    reference=reduced(elements),
    functional=reduced(as_written),
    kinks=KINK_AT_ZERO,
    branches=LINEAR_ON_BOTH_SIDES,
    temporaries=6,
)
