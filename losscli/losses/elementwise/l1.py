"""Absolute error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..calling import Arguments, Calls, reduction_of
from ..making import element_loss
from ..reduction import reduce
from ..spec import Operand
from .branches import kink_at_zero, linear_on_both_sides

if TYPE_CHECKING:
    from torch import Tensor


def reference(input: Tensor, target: Tensor, *, reduction: str) -> Tensor:
    """The formula as a person writes it in PyTorch; the gradient at zero is 0."""
    return reduce((input - target).abs(), reduction)


def functional(input: Tensor, target: Tensor, *, reduction: str) -> Tensor:
    """torch.nn.functional's own op."""
    import torch

    input, target = torch.broadcast_tensors(input, target)
    return torch.nn.functional.l1_loss(input, target, reduction=reduction)


def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Arguments:
    """Absolute error, as torch.nn.functional.l1_loss: ``|input - target|``.

    The gradient is the sign of the difference, 0 where the two are equal or one is NaN.

    Args:
        input: predictions, any shape.
        target: broadcastable with ``input``; its last dimension meets the last of ``input``.
        size_average: deprecated, as PyTorch's: say it with ``reduction``.
        reduce: the same.
        reduction: ``none`` (the broadcast shape), ``mean`` or ``sum`` (shape ``()``).
        weight: multiplies the loss of each element; broadcastable with both, and differentiable.
            The mean is then the weighted sum over the sum of the weights, as PyTorch's.

    Returns:
        The loss, in the promoted dtype.
    """
    reduction = reduction_of(reduction, size_average, reduce)
    return Arguments((input, target), reduction, (), weight)


SPEC = element_loss(
    l1_loss,
    "L1Loss",
    calls=Calls("l1", by_weights=True, warns=True),
    formula="|x - y|",
    operands=(Operand("input", "predictions"), Operand("target", "values to predict")),
    parameters=(),
    reference=reference,
    functional=functional,
    kinks=kink_at_zero,
    branches=linear_on_both_sides,
)
