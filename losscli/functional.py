"""The losses as functions: drop-in for those of torch.nn.functional, forward and backward fused.

Every loss takes ``input`` and ``target`` of any broadcastable shapes and strides, in float32,
float64, float16 or bfloat16 (mixed dtypes are promoted as PyTorch promotes them), on the CPU or on
a CUDA device, and is differentiable twice in both. The first call of a loss on a device loads its
kernels, which are built if need be. Importing this module defines the operators and builds nothing:
a program that ``torch.export`` saved runs once it is imported.

In training the gradient that comes in from above (1, a loss's weight, a GradScaler's factor) is the
same number for many steps. Forward writes the gradients for the number that the last backward
found; another number costs a second pass and never a digit. Calls of these functions share what
they expect with other calls of the same loss, shape and settings; the modules of
:mod:`losscli.nn` have each their own.

All of them raise ValueError for an unknown reduction or a parameter out of its domain, TypeError
where the promoted dtype is not one of these four, and RuntimeError for shapes that do not broadcast
or tensors on different devices. Reduction and parameters are keyword-only.
"""

from __future__ import annotations

import torch
from torch import Tensor

from losscli.extension import operators as operators  # defines torch.ops.losscli

__all__ = [
    "hinge_loss",
    "hinge_loss_with_grad",
    "mse_loss",
    "mse_loss_with_grad",
    "smooth_l1_loss",
    "smooth_l1_loss_with_grad",
]


_OPERATORS = torch.ops.losscli
_smooth_l1 = _OPERATORS.smooth_l1.default
_smooth_l1_with_grad = _OPERATORS.smooth_l1_with_grad.default
_mse = _OPERATORS.mse.default
_mse_with_grad = _OPERATORS.mse_with_grad.default
_hinge = _OPERATORS.hinge.default
_hinge_with_grad = _OPERATORS.hinge_with_grad.default


def smooth_l1_loss(
    input: Tensor, target: Tensor, *, reduction: str = "mean", beta: float = 1.0
) -> Tensor:
    """Smooth L1 loss (Girshick, Fast R-CNN, 2015), as torch.nn.functional.smooth_l1_loss.

    With ``d = input - target``: ``0.5 * d**2 / beta`` where ``|d| < beta``, else
    ``|d| - 0.5 * beta``. The gradient is ``d / beta`` inside and the sign of ``d`` from
    ``|d| = beta`` on; ``beta=0`` gives the L1 loss, whose gradient at zero is 0.

    Args:
        input: predictions, any shape.
        target: broadcastable with ``input``; its last dimension meets the last of ``input``.
        reduction: ``none`` (the broadcast shape), ``mean`` or ``sum`` (shape ``()``).
        beta: where the quadratic part ends; at least 0.

    Returns:
        The loss, in the promoted dtype.
    """
    loss: Tensor = _smooth_l1(input, target, reduction, beta)
    return loss


def smooth_l1_loss_with_grad(
    input: Tensor,
    target: Tensor,
    *,
    reduction: str = "mean",
    beta: float = 1.0,
    grad_output: Tensor | float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Smooth L1 loss and its gradient for ``input`` in one launch, without autograd.

    Args:
        input: as for :func:`smooth_l1_loss`, and the rest but the last.
        target: broadcastable with ``input``.
        reduction: ``none``, ``mean`` or ``sum``.
        beta: where the quadratic part ends.
        grad_output: what the gradient is multiplied by: a number, or a tensor of one element; with
            reduction ``none`` also a tensor of the loss's shape.

    Returns:
        The loss and, in the shape of ``input``, the gradient of the loss (of its sum, with
        reduction ``none``).
    """
    tensor, factor = _incoming(grad_output)
    loss, gradient = _smooth_l1_with_grad(input, target, reduction, beta, tensor, factor)
    return loss, gradient


def mse_loss(input: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """Mean squared error, as torch.nn.functional.mse_loss: ``(input - target)**2``.

    Args:
        input: predictions, any shape.
        target: broadcastable with ``input``; its last dimension meets the last of ``input``.
        reduction: ``none`` (the broadcast shape), ``mean`` or ``sum`` (shape ``()``).

    Returns:
        The loss, in the promoted dtype.
    """
    loss: Tensor = _mse(input, target, reduction)
    return loss


def mse_loss_with_grad(
    input: Tensor,
    target: Tensor,
    *,
    reduction: str = "mean",
    grad_output: Tensor | float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Mean squared error and its gradient for ``input`` in one launch, without autograd.

    Args:
        input: as for :func:`mse_loss`, and the rest but the last.
        target: broadcastable with ``input``.
        reduction: ``none``, ``mean`` or ``sum``.
        grad_output: what the gradient is multiplied by: a number, or a tensor of one element; with
            reduction ``none`` also a tensor of the loss's shape.

    Returns:
        The loss and, in the shape of ``input``, the gradient of the loss (of its sum, with
        reduction ``none``).
    """
    tensor, factor = _incoming(grad_output)
    loss, gradient = _mse_with_grad(input, target, reduction, tensor, factor)
    return loss, gradient


def hinge_loss(
    input: Tensor, target: Tensor, *, reduction: str = "mean", margin: float = 1.0
) -> Tensor:
    """Hinge loss for targets of -1 and 1: ``clamp(margin - input * target, min=0)``.

    At the kink, where ``input * target == margin``, the gradient passes, as that of
    ``torch.clamp`` does. The targets are not checked to be -1 or 1.

    Args:
        input: predictions, any shape.
        target: broadcastable with ``input``; its last dimension meets the last of ``input``, so
            (N,) against (B, N) holds one target a column.
        reduction: ``none`` (the broadcast shape), ``mean`` or ``sum`` (shape ``()``).
        margin: how far on its side of zero a prediction is to lie; any finite number.

    Returns:
        The loss, in the promoted dtype.
    """
    loss: Tensor = _hinge(input, target, reduction, margin)
    return loss


def hinge_loss_with_grad(
    input: Tensor,
    target: Tensor,
    *,
    reduction: str = "mean",
    margin: float = 1.0,
    grad_output: Tensor | float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Hinge loss and its gradient for ``input`` in one launch, without autograd.

    Args:
        input: as for :func:`hinge_loss`, and the rest but the last.
        target: broadcastable with ``input``.
        reduction: ``none``, ``mean`` or ``sum``.
        margin: how far on its side of zero a prediction is to lie.
        grad_output: what the gradient is multiplied by: a number, or a tensor of one element; with
            reduction ``none`` also a tensor of the loss's shape.

    Returns:
        The loss and, in the shape of ``input``, the gradient of the loss (of its sum, with
        reduction ``none``).
    """
    tensor, factor = _incoming(grad_output)
    loss, gradient = _hinge_with_grad(input, target, reduction, margin, tensor, factor)
    return loss, gradient


def _incoming(grad_output: Tensor | float) -> tuple[Tensor | None, float]:
    """Return an incoming gradient as the operators take it: a tensor, or a factor."""
    if isinstance(grad_output, Tensor):
        return grad_output, 1.0
    return None, float(grad_output)
