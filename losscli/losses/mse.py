"""Mean squared error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from . import operators, weighting
from .module import LossModule
from .reduction import reduce
from .spec import LossSpec, Operand

if TYPE_CHECKING:
    from torch import Tensor


def reference(input: Tensor, target: Tensor, *, reduction: str) -> Tensor:
    """The formula as a person writes it in PyTorch."""
    return reduce((input - target) ** 2, reduction)


def functional(input: Tensor, target: Tensor, *, reduction: str) -> Tensor:
    """torch.nn.functional's own op."""
    import torch

    input, target = torch.broadcast_tensors(input, target)
    # Its backward takes one dtype; later than torch 2.11 it promotes, and on a GPU rounds both
    # operands to the dtype of the gradient that it writes.
    wide = torch.promote_types(input.dtype, target.dtype)
    input, target = input.to(wide), target.to(wide)
    return torch.nn.functional.mse_loss(input, target, reduction=reduction)


def kinks(parameters: Mapping[str, float]) -> tuple[float, ...]:
    """There is no kink."""
    return ()


def branches(parameters: Mapping[str, float]) -> tuple[str, ...]:
    """There is one branch."""
    return ("quadratic",)


def branch_coordinate(input: Tensor, target: Tensor) -> Tensor:
    """The difference ``input - target``."""
    return input - target


def mse_loss(
    input: Tensor, target: Tensor, *, reduction: str = "mean", weight: Tensor | None = None
) -> Tensor:
    """Mean squared error, as torch.nn.functional.mse_loss: ``(input - target)**2``.

    Args:
        input: predictions, any shape.
        target: broadcastable with ``input``; its last dimension meets the last of ``input``.
        reduction: ``none`` (the broadcast shape), ``mean`` or ``sum`` (shape ``()``).
        weight: multiplies the loss of each element; broadcastable with both, and differentiable.
            The mean is then the weighted sum over the sum of the weights, as PyTorch's.

    Returns:
        The loss, in the promoted dtype.
    """
    if weight is not None:
        return weighting.call("mse", (input, target), weight, reduction, by_weights=True)
    loss: Tensor = operators.mse(input, target, reduction)
    return loss


def mse_loss_with_grad(
    input: Tensor,
    target: Tensor,
    *,
    reduction: str = "mean",
    grad_output: Tensor | float = 1.0,
    weight: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Mean squared error and its gradient for ``input`` in one launch, without autograd.

    Args:
        input: as for :func:`mse_loss`, and the rest but ``grad_output``.
        target: broadcastable with ``input``.
        reduction: ``none``, ``mean`` or ``sum``.
        grad_output: what the gradient is multiplied by: a number, or a tensor of one element; with
            reduction ``none`` also a tensor of the loss's shape.
        weight: as for :func:`mse_loss`.

    Returns:
        The loss and, in the shape of ``input``, the gradient of the loss (of its sum, with
        reduction ``none``).
    """
    if weight is not None:
        return weighting.call_with_grad(
            "mse", (input, target), weight, reduction, grad_output=grad_output, by_weights=True
        )
    tensor, factor = operators.incoming(grad_output)
    loss, gradient = operators.mse_with_grad(input, target, reduction, tensor, factor)
    return loss, gradient


class MSELoss(LossModule):
    """See :func:`losscli.functional.mse_loss`."""

    def __init__(self, *, reduction: str = "mean") -> None:
        super().__init__(SPEC, reduction)

    def forward(self, input: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Return the loss of ``input`` against ``target``, where there is a weight times it."""
        if weight is not None:
            operands = input, target
            return weighting.call(
                "mse", operands, weight, self.reduction, self._site, by_weights=True
            )
        loss: Tensor = operators.mse(input, target, self.reduction, self._site)
        return loss


SPEC = LossSpec(
    name="mse",
    formula="(x - y)^2",
    operands=(Operand("input", "predictions"), Operand("target", "values to predict")),
    parameters=(),
    reference=reference,
    functional=functional,
    kinks=kinks,
    branch_coordinate=branch_coordinate,
    branches=branches,
    loss=mse_loss,
    loss_with_grad=mse_loss_with_grad,
    module=MSELoss,
)
