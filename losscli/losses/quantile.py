"""Quantile, or pinball loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .calling import Arguments, Calls
from .module import LossModule
from .reduction import reduce
from .spec import LossSpec, Operand, Parameter

if TYPE_CHECKING:
    from torch import Tensor


def reference(input: Tensor, target: Tensor, *, reduction: str, quantile: float) -> Tensor:
    """The formula as a person writes it in PyTorch; at the kink the mean of both gradients."""
    import torch

    d = target - input
    return reduce(torch.maximum(quantile * d, (quantile - 1) * d), reduction)


def kinks(parameters: Mapping[str, float]) -> tuple[float, ...]:
    """The derivative jumps at zero."""
    return (0.0,)


def branches(parameters: Mapping[str, float]) -> tuple[str, ...]:
    """Linear on both sides."""
    return ("linear below", "linear above")


def branch_coordinate(input: Tensor, target: Tensor) -> Tensor:
    """The difference ``input - target`` selects the branch."""
    return input - target


CALLS = Calls("quantile")


@CALLS.function
def quantile_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    quantile: float = 0.5,
    weight: Tensor | None = None,
) -> Arguments:
    """Quantile, or pinball loss (Koenker and Bassett, Econometrica, 1978).

    With ``d = target - input``: ``quantile * d`` where ``d`` is positive, else
    ``(quantile - 1) * d``. Its minimum is at that quantile of the target. At the kink the gradient
    is the mean of both sides'; half of the L1 loss where ``quantile`` is 0.5.

    Args:
        input: predictions, any shape.
        target: broadcastable with ``input``; its last dimension meets the last of ``input``.
        reduction: ``none`` (the broadcast shape), ``mean`` or ``sum`` (shape ``()``).
        quantile: of the target that is predicted; above 0 and below 1.
        weight: multiplies the loss of each element; broadcastable with both, and differentiable.
            The mean divides by the number of elements, as that of PyTorch's Huber loss.

    Returns:
        The loss, in the promoted dtype.
    """
    return Arguments((input, target), reduction, (quantile,), weight)


quantile_loss_with_grad = CALLS.with_grad(quantile_loss)


class QuantileLoss(LossModule):
    """See :func:`losscli.functional.quantile_loss`."""

    calls = CALLS
    quantile: float

    def __init__(self, reduction: str = "mean", quantile: float = 0.5) -> None:
        super().__init__(SPEC, reduction, quantile=quantile)


SPEC = LossSpec(
    name="quantile",
    formula="max(quantile * (y - x), (quantile - 1) * (y - x))",
    operands=(Operand("input", "predictions"), Operand("target", "values to predict")),
    parameters=(
        Parameter("quantile", 0.5, 0.0, "of the target that is predicted", 0.9, 1.0, open=True),
    ),
    reference=reference,
    functional=None,
    kinks=kinks,
    branch_coordinate=branch_coordinate,
    branches=branches,
    loss=quantile_loss,
    loss_with_grad=quantile_loss_with_grad,
    module=QuantileLoss,
)
