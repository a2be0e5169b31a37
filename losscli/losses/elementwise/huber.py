"""Huber: quadratic near zero, linear beyond ``delta``."""

from __future__ import annotations

from losscli.machine.pytorch import Tensor, torch

from .. import aten
from ..calling import Arguments, Calls
from ..fields import Parameter
from ..formulas import fixed
from ..making import element_loss
from ..shapes import WARNED


def _reference(input: Tensor, target: Tensor, *, reduction: str, delta: float) -> Tensor:
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
    """
    return Arguments((input, target), reduction, (delta,), weight)


SPEC = element_loss(
    huber_loss,
    "HuberLoss",
    calls=Calls("huber", shapes=WARNED),
    formula="0.5 * (x - y)^2 if |x - y| < delta else delta * (|x - y| - 0.5 * delta)",
    parameters=(Parameter("delta", 1.0, 0.0, "where the quadratic part ends", 0.7, open=True),),
    reference=_reference,
    kinks=lambda parameters: (-parameters["delta"], parameters["delta"]),
    branches=fixed(("linear below", "quadratic", "linear above")),
)
