"""Kullback-Leibler divergence of log-probabilities, and its estimates from tokens."""

from __future__ import annotations

from collections.abc import Mapping

from losscli.machine.pytorch import Tensor, torch

from .. import aten
from ..calling import Arguments, Calls, reduction_of
from ..domain import LOG_PROBABILITIES, PROBABILITIES, Domain
from ..fields import LOSS, Operand, Parameter, Terms, Tolerance, switch
from ..formulas import REDUCTIONS, reduce, torchs_own
from ..making import element_loss
from ..shapes import BROADCAST


def _kl_div(input: Tensor, target: Tensor, *, log_target: float) -> Tensor:
    if log_target:
        return torch.exp(target) * (target - input)
    entropy: Tensor = torch.special.xlogy(target, target)
    return entropy - target * input


def _kl_div_terms(input: Tensor, target: Tensor, *, log_target: float) -> Mapping[str, Tensor]:
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


def _kl_div_operands(parameters: Mapping[str, float]) -> tuple[Operand, ...]:
    return INPUT, LOG_PROBABILITY if parameters["log_target"] else PROBABILITY


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
        input: log-probabilities, any shape.
        target: probabilities, or with ``log_target`` their logarithms; broadcastable with
            ``input``, aligned at the last dimension.
        reduction: ``none`` (the broadcast shape), ``mean``, ``sum`` or ``batchmean`` (shape
            ``()``), which divides by the first extent of ``input``, as the divergence of
            distributions is defined.
        log_target: whether the target holds logarithms.
    """
    reduction, rows = reduction_of(reduction, size_average, reduce), None
    if reduction == BATCHMEAN:  # which no operator knows
        reduction, rows = "sum", input.shape[0] if input.dim() else None
    return Arguments((input, target), reduction, (float(log_target),), weight, rows)


BATCHMEAN = "batchmean"


KL_DIV = element_loss(
    kl_div,
    "KLDivLoss",
    calls=Calls("kl_div", shapes=BROADCAST, reductions=(*REDUCTIONS, BATCHMEAN)),
    formula="y * (log(y) - x)",
    operands_of=_kl_div_operands,
    parameters=(switch("log_target", False, "whether the target holds logarithms"),),
    elements=_kl_div,
    functional=torchs_own(aten.kl_div),  # it takes no integers
    temporaries=8,
    tolerance=Tolerance(
        1.5, "exp(target) and the product with it add two roundings to the four of an element"
    ),
    terms=Terms(_kl_div_terms, "log(target) - input cancels where the two distributions agree"),
)


def _kl_estimate(log_probs: Tensor, reference_log_probs: Tensor, *, estimator: float) -> Tensor:
    return _estimated(reference_log_probs - log_probs, estimator)


def _estimated(d: Tensor, estimator: float) -> Tensor:
    if estimator == 3:
        return d.expm1() - d  # which keeps its digits where both agree
    return -d if estimator == 1 else 0.5 * d * d


def _as_written(
    log_probs: Tensor, reference_log_probs: Tensor, *, reduction: str, estimator: float
) -> Tensor:
    d = reference_log_probs - log_probs
    return reduce(torch.exp(d) - d - 1 if estimator == 3 else _estimated(d, estimator), reduction)


def _kl_estimate_terms(
    log_probs: Tensor, reference_log_probs: Tensor, *, estimator: float
) -> Mapping[str, Tensor]:
    if estimator != 3:
        return {}
    d = reference_log_probs - log_probs
    slope = d.exp().clamp(min=1.0)
    return {
        LOSS: d.expm1().abs().maximum(d.abs()),
        "log_probs": slope,
        "reference_log_probs": slope,
    }


KL_ESTIMATE_CALLS = Calls("kl_estimate")


def kl_estimate(
    log_probs: Tensor,
    reference_log_probs: Tensor,
    *,
    estimator: int = 3,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Arguments:
    """Estimate of a Kullback-Leibler divergence from tokens (Schulman, Approximating KL, 2020).

    With ``d = reference_log_probs - log_probs`` of tokens sampled from the policy, ``k1 = -d``,
    ``k2 = 0.5 * d**2`` and ``k3 = exp(d) - 1 - d`` estimate the divergence of the policy from the
    reference (http://joschu.net/blog/kl-approx.html). k1 and k3 are unbiased; k2 and k3 are never
    negative. GRPO (Shao et al. 2024, arXiv:2402.03300) uses k3.

    Args:
        log_probs: the policy's log-probabilities, any shape; differentiable.
        reference_log_probs: the reference's; broadcastable with ``log_probs``, and differentiable.
        estimator: 1, 2 or 3, for k1, k2 or k3.
    """
    KL_ESTIMATE_CALLS.check({"estimator": estimator})
    return Arguments((log_probs, reference_log_probs), reduction, (estimator,), weight)


KL_ESTIMATE = element_loss(
    kl_estimate,
    "KLEstimateLoss",
    calls=KL_ESTIMATE_CALLS,
    formula="exp(d) - 1 - d, d = reference_log_probs - log_probs",
    operands=(
        Operand("log_probs", "log-probabilities of the policy"),
        Operand("reference_log_probs", "log-probabilities of the reference"),
    ),
    parameters=(
        Parameter(
            *("estimator", 3.0, 1.0, "1, 2 or 3, for k1, k2 or k3", 1.0),
            maximum=3.0,
            is_integer=True,
            other=2.0,
        ),
    ),
    elements=_kl_estimate,
    functional=_as_written,
    temporaries=6,
    terms=Terms(
        _kl_estimate_terms,
        "exp(d) - 1 - d and its derivative cancel where the policy agrees with the reference",
    ),
)
