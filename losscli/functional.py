"""The losses as functions: drop-in for those of torch.nn.functional, forward and backward fused.

Every loss takes ``input`` and ``target`` of any broadcastable shapes and strides, in float32,
float64, float16 or bfloat16 (mixed dtypes are promoted as PyTorch promotes them), on the CPU or on
a CUDA device, and is differentiable twice in both. The first call builds the kernels if they are
not built yet.

All of them raise ValueError for an unknown reduction or a parameter out of its domain, TypeError
where the promoted dtype is not one of these four, and RuntimeError for shapes that do not broadcast
or tensors on different devices. Reduction and parameters are keyword-only.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from losscli.extension import load

__all__ = [
    "hinge_loss",
    "hinge_loss_with_grad",
    "mse_loss",
    "mse_loss_with_grad",
    "smooth_l1_loss",
    "smooth_l1_loss_with_grad",
]


def _load() -> None:
    load.load()


# What torch.compiler.assume_constant_result does, which would import the whole compiler for it.
_load._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _operators() -> Any:
    """Return torch.ops.losscli, which the first use builds and loads."""
    if not load.loaded:
        _load()
    return torch.ops.losscli


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
    loss: Tensor = _operators().smooth_l1.default(input, target, reduction, beta)
    return loss


def smooth_l1_loss_with_grad(
    input: Tensor, target: Tensor, *, reduction: str = "mean", beta: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Smooth L1 loss and its gradient for ``input`` in one launch, without autograd.

    Arguments as for :func:`smooth_l1_loss`. Returns the loss and, in the shape of ``input``, the
    gradient of the loss (of its sum, with reduction ``none``).
    """
    loss, gradient = _operators().smooth_l1_with_grad.default(input, target, reduction, beta)
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
    loss: Tensor = _operators().mse.default(input, target, reduction)
    return loss


def mse_loss_with_grad(
    input: Tensor, target: Tensor, *, reduction: str = "mean"
) -> tuple[Tensor, Tensor]:
    """Mean squared error and its gradient for ``input`` in one launch, without autograd.

    Arguments as for :func:`mse_loss`. Returns the loss and, in the shape of ``input``, the
    gradient of the loss (of its sum, with reduction ``none``).
    """
    loss, gradient = _operators().mse_with_grad.default(input, target, reduction)
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
    loss: Tensor = _operators().hinge.default(input, target, reduction, margin)
    return loss


def hinge_loss_with_grad(
    input: Tensor, target: Tensor, *, reduction: str = "mean", margin: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Hinge loss and its gradient for ``input`` in one launch, without autograd.

    Arguments as for :func:`hinge_loss`. Returns the loss and, in the shape of ``input``, the
    gradient of the loss (of its sum, with reduction ``none``).
    """
    loss, gradient = _operators().hinge_with_grad.default(input, target, reduction, margin)
    return loss, gradient
