"""Kullback-Leibler divergence of log-probabilities."""

from __future__ import annotations

from losscli.machine.pytorch import Tensor, torch

from .. import aten
from ..calling import Arguments, Calls, reduction_of
from ..domain import LOG_PROBABILITIES, PROBABILITIES, Domain
from ..fields import LOSS, Operand, Terms, Tolerance, switch
from ..formulas import REDUCTIONS, torchs_own
from ..making import element_loss
from ..shapes import BROADCAST


def _elements(input: Tensor, target: Tensor, *, log_target: float) -> Tensor:
    if log_target:
        return torch.exp(target) * (target - input)
    entropy: Tensor = torch.special.xlogy(target, target)
    return entropy - target * input


def _terms(input: Tensor, target: Tensor, *, log_target: float) -> dict[str, Tensor]:
    if log_target:
        largest = torch.maximum(target.abs(), input.abs())
        power = torch.exp(target)
        return {LOSS: power * largest, "target": power * largest.clamp(min=1.0)}
    largest = torch.maximum(torch.log(target).abs(), input.abs())
    return {LOSS: target * largest, "target": largest.clamp(min=1.0)}


INPUT = Operand("input", "log-probabilities", domain=LOG_PROBABILITIES)
SMOOTH = Domain("1/16 to 1", low=0.0625, high=1.0)
"""At 0 the target's gradient is NaN, and near 0 it is steep."""
PROBABILITY = Operand("target", "probabilities", domain=PROBABILITIES, smooth=SMOOTH)
LOG_PROBABILITY = Operand("target", "log-probabilities", domain=LOG_PROBABILITIES)
BATCHMEAN = "batchmean"
"""A reduction that no operator has."""


def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
    weight: Tensor | None = None,
) -> Arguments:
    """Kullback-Leibler divergence, as torch.nn.functional.kl_div.

    ``target * (log(target) - input)``, and 0 for a target of 0; with ``log_target``, ``exp(target)
    * (target - input)``. As in PyTorch, the target's gradient is NaN at 0, and targets are not
    checked.

    Args:
        target: probabilities, or with ``log_target`` their logarithms; broadcastable with
            ``input``, aligned at the last dimension.
        reduction: ``none`` (the broadcast shape), ``mean``, ``sum`` or ``batchmean`` (shape
            ``()``), which divides by the first extent of ``input``, as the divergence of
            distributions is defined.
    """
    reduction, rows = reduction_of(reduction, size_average, reduce), None
    if reduction == BATCHMEAN:
        reduction, rows = "sum", input.shape[0] if input.dim() else None
    return Arguments((input, target), reduction, (float(log_target),), weight, rows)


SPEC = element_loss(
    kl_div,
    "KLDivLoss",
    calls=Calls("kl_div", shapes=BROADCAST, reductions=(*REDUCTIONS, BATCHMEAN)),
    formula="y * (log(y) - x)",
    operands_of=lambda given: (INPUT, LOG_PROBABILITY if given["log_target"] else PROBABILITY),
    parameters=(switch("log_target", False, "whether the target holds logarithms"),),
    elements=_elements,
    functional=torchs_own(aten.kl_div),  # it takes no integers
    temporaries=8,
    tolerance=Tolerance(
        1.5, "exp(target) and the product with it add two roundings to the four of an element"
    ),
    terms=Terms(_terms, "log(target) - input cancels where the two distributions agree"),
)
