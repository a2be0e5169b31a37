"""Quantile (pinball) loss with a quantile for each element."""

from __future__ import annotations

from losscli.machine.pytorch import Tensor, torch

from ..calling import Arguments
from ..domain import PROBABILITIES
from ..formulas import KINK_AT_ZERO, LINEAR_ON_BOTH_SIDES, reduce
from ..making import OPERANDS, element_loss
from ..operand import Operand, last_dimension


def reference(input: Tensor, target: Tensor, quantile: Tensor | float, *, reduction: str) -> Tensor:
    """The formula; at the kink the mean of both gradients, and only there."""
    d = target - input
    below = torch.where(d < 0, (quantile - 1) * d, (quantile - 0.5) * d)
    return reduce(torch.where(d > 0, quantile * d, below), reduction)


def as_written(
    input: Tensor, target: Tensor, quantile: Tensor | float, *, reduction: str
) -> Tensor:
    """The loss as written in PyTorch, faster; subnormal differences count as zero."""
    d = target - input
    return reduce(torch.maximum(quantile * d, (quantile - 1) * d), reduction)


def quantiles_loss(
    input: Tensor,
    target: Tensor,
    quantile: Tensor,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Arguments:
    """Quantile (pinball) loss (Koenker and Bassett, Econometrica, 1978) of many quantiles.

    As :func:`quantile_loss`, with a quantile for each element: shape (K,) has one for each column
    of an input of shape (N, K), whose target may have shape (N, 1).

    Args:
        quantile: the quantiles to predict; broadcastable with both, and differentiable. The values
            are not checked to be between 0 and 1; the dtype is promoted with the others.
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
    reference=reference,
    functional=as_written,
    kinks=KINK_AT_ZERO,
    branches=LINEAR_ON_BOTH_SIDES,
    temporaries=6,
)
