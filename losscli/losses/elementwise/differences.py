"""Losses of the difference of prediction and target."""

from __future__ import annotations

import math
from collections.abc import Mapping

from losscli.machine.pytorch import Tensor, torch

from .. import aten
from ..calling import Arguments, Calls, reduction_of
from ..fields import Parameter, Tolerance
from ..formulas import KINK_AT_ZERO, LINEAR_ON_BOTH_SIDES, QUADRATIC, fixed, reduce, torchs_own
from ..making import element_loss
from ..shapes import WARNED


def _l1_reference(input: Tensor, target: Tensor, *, reduction: str) -> Tensor:
    return reduce((input - target).abs(), reduction)


def _l1_functional(input: Tensor, target: Tensor, *, reduction: str) -> Tensor:
    input, target = torch.broadcast_tensors(input, target)
    return aten.l1_loss(input, target, reduction=reduction)


def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Arguments:
    """Absolute error, as torch.nn.functional.l1_loss: ``|input - target|``.

    The gradient is the sign of the difference; it is 0 where both are equal or one is NaN.
    """
    reduction = reduction_of(reduction, size_average, reduce)
    return Arguments((input, target), reduction, (), weight)


L1 = element_loss(
    l1_loss,
    "L1Loss",
    calls=Calls("l1", by_weights=True, shapes=WARNED),
    formula="|x - y|",
    reference=_l1_reference,
    functional=_l1_functional,
    kinks=KINK_AT_ZERO,
    branches=LINEAR_ON_BOTH_SIDES,
)


def _mse_reference(input: Tensor, target: Tensor, *, reduction: str) -> Tensor:
    return reduce((input - target) ** 2, reduction)


def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Arguments:
    """Mean squared error, as torch.nn.functional.mse_loss: ``(input - target)**2``."""
    reduction = reduction_of(reduction, size_average, reduce)
    return Arguments((input, target), reduction, (), weight)


MSE = element_loss(
    mse_loss,
    "MSELoss",
    calls=Calls("mse", by_weights=True, shapes=WARNED),
    formula="(x - y)^2",
    reference=_mse_reference,
    # Its backward takes one dtype. After torch 2.11 it promotes, and on a GPU rounds both
    # operands to the gradient's dtype.
    functional=torchs_own(aten.mse_loss),
    branches=QUADRATIC,
)


def _huber_reference(input: Tensor, target: Tensor, *, reduction: str, delta: float) -> Tensor:
    input, target = torch.broadcast_tensors(input, target)
    wide = torch.promote_types(input.dtype, target.dtype)
    return aten.huber_loss(input.to(wide), target.to(wide), reduction=reduction, delta=delta)


def huber_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: Tensor | None = None,
) -> Arguments:
    """Huber loss (Annals of Mathematical Statistics, 1964), as torch.nn.functional.huber_loss.

    With ``d = input - target``: ``0.5 * d**2`` where ``|d| < delta``, else ``delta * (|d| - 0.5 *
    delta)``. The gradient is ``d`` where ``|d| < delta``, else ``delta * sign(d)``.

    Args:
        delta: where the quadratic part ends; above 0.
    """
    return Arguments((input, target), reduction, (delta,), weight)


HUBER = element_loss(
    huber_loss,
    "HuberLoss",
    calls=Calls("huber", shapes=WARNED),
    formula="0.5 * (x - y)^2 if |x - y| < delta else delta * (|x - y| - 0.5 * delta)",
    parameters=(Parameter("delta", 1.0, 0.0, "where the quadratic part ends", 0.7, open=True),),
    reference=_huber_reference,
    kinks=lambda parameters: (-parameters["delta"], parameters["delta"]),
    branches=fixed(("linear below", "quadratic", "linear above")),
)


def _smooth_l1_reference(input: Tensor, target: Tensor, *, reduction: str, beta: float) -> Tensor:
    input, target = torch.broadcast_tensors(input, target)
    # On a GPU torch's backward rounds both operands to the gradient's dtype.
    wide = torch.promote_types(input.dtype, target.dtype)
    if any(operand.requires_grad and operand.dtype != wide for operand in (input, target)):
        input, target = input.to(wide), target.to(wide)
    return aten.smooth_l1_loss(input, target, reduction=reduction, beta=beta)


def _smooth_l1_kinks(parameters: Mapping[str, float]) -> tuple[float, ...]:
    beta = parameters["beta"]
    return (-beta, beta) if beta > 0 else (0.0,)


def _smooth_l1_branches(parameters: Mapping[str, float]) -> tuple[str, ...]:
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

    Args:
        beta: where the quadratic part ends; at least 0.
    """
    reduction = reduction_of(reduction, size_average, reduce)
    return Arguments((input, target), reduction, (beta,), weight)


SMOOTH_L1 = element_loss(
    smooth_l1_loss,
    "SmoothL1Loss",
    calls=Calls("smooth_l1", shapes=WARNED),
    formula="0.5 * (x - y)^2 / beta if |x - y| < beta else |x - y| - 0.5 * beta",
    parameters=(
        Parameter("beta", 1.0, 0.0, "where the quadratic part ends; 0 gives the L1 loss", 0.7),
    ),
    reference=_smooth_l1_reference,
    kinks=_smooth_l1_kinks,
    branches=_smooth_l1_branches,
)


FAR = 20.0
"""The difference from which ``exp(-2 * d)`` does not change the loss even in float64."""


def _log_cosh(input: Tensor, target: Tensor) -> Tensor:
    d = input - target
    far = d.abs() > FAR
    inside = torch.where(far, torch.zeros_like(d), d)
    # Its gradient, sinh / cosh, is right everywhere; its value is not near zero.
    value = torch.log(torch.cosh(inside))
    right = 0.5 * torch.log1p(torch.sinh(inside) ** 2)
    value = torch.where(inside.abs() < 2, value + (right - value).detach(), value)
    return torch.where(far, d.abs() - math.log(2), value)


def _log_cosh_as_written(input: Tensor, target: Tensor, *, reduction: str) -> Tensor:
    # Small differences lose their digits.
    d = input - target
    return reduce(d + aten.softplus(-2 * d) - math.log(2), reduction)


def log_cosh_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", weight: Tensor | None = None
) -> Arguments:
    """Log-cosh loss: ``log(cosh(input - target))``.

    About ``0.5 * d**2`` for a small difference d and ``|d| - log(2)`` for a large one. The gradient
    is ``tanh(d)``.
    """
    return Arguments((input, target), reduction, (), weight)


LOG_COSH = element_loss(
    log_cosh_loss,
    "LogCoshLoss",
    formula="log(cosh(x - y))",
    elements=_log_cosh,
    functional=_log_cosh_as_written,
    tolerance=Tolerance(
        1.5, "tanh of a GPU is off by up to 2 ulp, besides four roundings of an element"
    ),
    temporaries=11,
)
