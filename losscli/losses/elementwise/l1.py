"""Absolute error."""

from __future__ import annotations

from losscli.machine.pytorch import Tensor, torch

from .. import aten
from ..calling import Arguments, Calls, reduction_of
from ..formulas import KINK_AT_ZERO, LINEAR_ON_BOTH_SIDES, reduced
from ..making import element_loss
from ..shapes import WARNED


def _functional(input: Tensor, target: Tensor, *, reduction: str) -> Tensor:
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
    return Arguments((input, target), reduction_of(reduction, size_average, reduce), (), weight)


SPEC = element_loss(
    l1_loss,
    "L1Loss",
    calls=Calls("l1", by_weights=True, shapes=WARNED),
    formula="|x - y|",
    reference=reduced(lambda input, target: (input - target).abs()),
    functional=_functional,
    kinks=KINK_AT_ZERO,
    branches=LINEAR_ON_BOTH_SIDES,
)
