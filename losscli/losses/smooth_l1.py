"""Smooth L1: quadratic near zero, linear beyond ``beta``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .spec import LossSpec, Operand, Parameter, same_shape

if TYPE_CHECKING:
    from torch import Tensor


def reference(input: Tensor, target: Tensor, *, reduction: str, beta: float) -> Tensor:
    """torch's own smooth L1; its formula is that of Girshick, Fast R-CNN (2015), with beta."""
    import torch
    from torch.nn import functional

    input, target = torch.broadcast_tensors(input, target)
    # On a GPU torch's backward rounds both operands to the dtype of the gradient that it writes.
    wide = torch.promote_types(input.dtype, target.dtype)
    if any(operand.requires_grad and operand.dtype != wide for operand in (input, target)):
        input, target = input.to(wide), target.to(wide)
    return functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)


def kinks(parameters: Mapping[str, float]) -> tuple[float, ...]:
    """The second derivative jumps at -beta and beta (with beta 0: the first, at zero)."""
    beta = parameters["beta"]
    return (-beta, beta) if beta > 0 else (0.0,)


def branches(parameters: Mapping[str, float]) -> tuple[str, ...]:
    """Linear on both sides; with beta 0 there is nothing between."""
    below, above = "linear below", "linear above"
    return (below, "quadratic", above) if parameters["beta"] > 0 else (below, above)


def branch_coordinate(input: Tensor, target: Tensor) -> Tensor:
    """The difference decides."""
    return input - target


SPEC = LossSpec(
    name="smooth_l1",
    formula="0.5 * (x - y)^2 / beta if |x - y| < beta else |x - y| - 0.5 * beta",
    operands=(Operand("input", "predictions"), Operand("target", "what they should be")),
    parameters=(
        Parameter("beta", 1.0, 0.0, "where the quadratic part ends; 0 gives the L1 loss", 0.7),
    ),
    reference=reference,
    functional=None,
    default_target_shape=same_shape,
    kinks=kinks,
    branch_coordinate=branch_coordinate,
    branches=branches,
)
