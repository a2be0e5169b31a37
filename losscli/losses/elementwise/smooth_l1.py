"""Smooth L1: quadratic near zero, linear beyond ``beta``."""

from __future__ import annotations

from collections.abc import Mapping

from losscli.machine.pytorch import Tensor, torch

from .. import aten
from ..calling import Arguments, Calls, reduction_of
from ..fields import Parameter
from ..making import element_loss
from ..shapes import WARNED


def _reference(input: Tensor, target: Tensor, *, reduction: str, beta: float) -> Tensor:
    input, target = torch.broadcast_tensors(input, target)
    # On a GPU torch's backward rounds both operands to the gradient's dtype.
    wide = torch.promote_types(input.dtype, target.dtype)
    if any(operand.requires_grad and operand.dtype != wide for operand in (input, target)):
        input, target = input.to(wide), target.to(wide)
    return aten.smooth_l1_loss(input, target, reduction=reduction, beta=beta)


def _branches(parameters: Mapping[str, float]) -> tuple[str, ...]:
    below, above = "linear below", "linear above"
    return (below, "quadratic", above) if parameters["beta"] > 0 else (below, above)


def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    beta: float = 1.0,
    weight: Tensor | None = None,
) -> Arguments:
    """Smooth L1 loss (Girshick, Fast R-CNN, 2015), as torch.nn.functional.smooth_l1_loss.

    With ``d = input - target``: ``0.5 * d**2 / beta`` where ``|d| < beta``, else ``|d| - 0.5 *
    beta``. The gradient is ``d / beta`` where ``|d| < beta``, else ``sign(d)``. ``beta=0`` gives
    the L1 loss, with gradient 0 at zero.
    """
    reduction = reduction_of(reduction, size_average, reduce)
    return Arguments((input, target), reduction, (beta,), weight)


SPEC = element_loss(
    smooth_l1_loss,
    "SmoothL1Loss",
    calls=Calls("smooth_l1", shapes=WARNED),
    formula="0.5 * (x - y)^2 / beta if |x - y| < beta else |x - y| - 0.5 * beta",
    parameters=(
        Parameter("beta", 1.0, 0.0, "where the quadratic part ends; 0 gives the L1 loss", 0.7),
    ),
    reference=_reference,
    kinks=lambda given: (-given["beta"], given["beta"]) if given["beta"] > 0 else (0.0,),
    branches=_branches,
)
