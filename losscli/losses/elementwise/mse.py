"""Mean squared error."""

from __future__ import annotations

from losscli.machine.pytorch import Tensor

from .. import aten
from ..calling import Arguments, Calls, reduction_of
from ..formulas import QUADRATIC, reduced, torchs_own
from ..making import element_loss
from ..shapes import WARNED


def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Arguments:
    """Mean squared error, as torch.nn.functional.mse_loss: ``(input - target)**2``."""
    return Arguments((input, target), reduction_of(reduction, size_average, reduce), (), weight)


SPEC = element_loss(
    mse_loss,
    "MSELoss",
    calls=Calls("mse", by_weights=True, shapes=WARNED),
    formula="(x - y)^2",
    reference=reduced(lambda input, target: (input - target) ** 2),
    # Its backward takes one dtype. After torch 2.11 it promotes, and on a GPU rounds both
    # operands to the gradient's dtype.
    functional=torchs_own(aten.mse_loss),
    branches=QUADRATIC,
)
