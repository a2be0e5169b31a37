"""Quantile (pinball) loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from losscli.machine.pytorch import Tensor, torch

from .. import operators
from ..calling import Arguments, Calls
from ..fields import Parameter
from ..formulas import KINK_AT_ZERO, LINEAR_ON_BOTH_SIDES, promoted, reduced, widened
from ..making import element_loss
from . import quantiles


def _elements(input: Tensor, target: Tensor, *, quantile: float) -> Tensor:
    return quantiles.elements(input, target, quantile)


class _QuantileCalls(Calls):
    def check(self, settings: Mapping[str, float | Sequence[float]]) -> None:
        if isinstance(quantile := settings["quantile"], Sequence):
            _check_several(quantile)
            settings = {**settings, "quantile": 0.5}
        super().check(settings)


def _several(
    input: Tensor, target: Tensor, quantile: Sequence[float], reduction: str, weight: Tensor | None
) -> Arguments:
    """Return arguments with quantiles as an operand, in float32 to keep their distance to 1."""
    _check_several(quantile)
    if input.dim() == 0 or input.shape[-1] != len(quantile):
        raise ValueError(
            f"quantile: {len(quantile)} quantiles need an input whose last dimension has as many "
            f"elements, but its shape is {list(input.shape)}"
        )
    tensors = (input, target) if weight is None else (input, target, weight)
    dtype = promoted(*tensors)
    operands = (input, target, on_device(tuple(map(float, quantile)), widened(dtype), input))
    return Arguments(operands, reduction, (), weight, operator="quantiles", dtype=dtype)


def _check_several(quantile: Sequence[float]) -> None:
    (parameter,) = SPEC.parameters
    wrong = [complaint for each in quantile if (complaint := parameter.check(float(each)))]
    if wrong or not quantile:
        raise ValueError(f"quantile: {wrong[0] if wrong else 'there must be at least one'}")


_ON_DEVICE: dict[tuple[tuple[float, ...], torch.dtype, torch.device], Tensor] = {}
_MOST = 64


def on_device(values: tuple[float, ...], dtype: torch.dtype, like: Tensor) -> Tensor:
    """Return numbers as a tensor, cached on a GPU for captures of CUDA graphs."""
    key = (values, dtype, like.device)
    kept = not operators.is_compiling() and not torch.is_inference_mode_enabled()
    if kept and key in _ON_DEVICE:
        return _ON_DEVICE[key]
    made = torch.tensor(values, dtype=dtype, device=like.device)
    is_plain = type(made) is torch.Tensor and not torch._C._functorch.is_functorch_wrapped_tensor(
        made
    )
    if kept and is_plain and like.device.type != "cpu" and len(_ON_DEVICE) < _MOST:
        _ON_DEVICE[key] = made
    return made


def quantile_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    quantile: float | Sequence[float] = 0.5,
    weight: Tensor | None = None,
) -> Arguments:
    """Quantile (pinball) loss (Koenker and Bassett, Econometrica, 1978).

    With ``d = target - input``: ``quantile * d`` where ``d`` is positive, else ``(quantile - 1) *
    d``. Its minimum is at that quantile of the target. At ``d == 0`` the gradient is the mean of
    both sides. With ``quantile=0.5`` it is half the L1 loss.

    Args:
        input: predictions, any shape; with K quantiles ``(..., K)``, one column for each. A target
            of shape ``(..., 1)`` then serves all columns.
        quantile: the quantile to predict, or several; each above 0 and below 1.
    """
    if isinstance(quantile, Sequence):
        return _several(input, target, quantile, reduction, weight)
    return Arguments((input, target), reduction, (quantile,), weight)


SPEC = element_loss(
    quantile_loss,
    "QuantileLoss",
    calls=_QuantileCalls("quantile"),
    formula="max(quantile * (y - x), (quantile - 1) * (y - x))",
    parameters=(
        Parameter("quantile", 0.5, 0.0, "which quantile is predicted", 0.9, 1.0, open=True),
    ),
    reference=reduced(_elements),
    functional=reduced(quantiles.as_written),
    kinks=KINK_AT_ZERO,
    branches=LINEAR_ON_BOTH_SIDES,
    temporaries=6,
)
