"""Estimates of a Kullback-Leibler divergence from a policy's tokens."""

from __future__ import annotations

from losscli.machine.pytorch import Tensor, torch

from ..calling import Arguments, Calls
from ..fields import LOSS, Operand, Parameter, Terms
from ..formulas import reduced
from ..making import element_loss


def _elements(log_probs: Tensor, reference_log_probs: Tensor, *, estimator: float) -> Tensor:
    d = reference_log_probs - log_probs
    if estimator == 3:
        return d.expm1() - d  # which keeps its digits where both agree
    return -d if estimator == 1 else 0.5 * d * d


def _as_written(log_probs: Tensor, reference_log_probs: Tensor, *, estimator: float) -> Tensor:
    if estimator != 3:
        return _elements(log_probs, reference_log_probs, estimator=estimator)
    d = reference_log_probs - log_probs
    return torch.exp(d) - d - 1


def _terms(
    log_probs: Tensor, reference_log_probs: Tensor, *, estimator: float
) -> dict[str, Tensor]:
    if estimator != 3:
        return {}
    d = reference_log_probs - log_probs
    loss, slope = d.expm1().abs().maximum(d.abs()), d.exp().clamp(min=1.0)
    return {LOSS: loss, "log_probs": slope, "reference_log_probs": slope}


CALLS = Calls("kl_estimate")


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
    negative. GRPO (Shao et al. 2024, arXiv:2402.03300) uses k3. Both operands have gradients.
    """
    CALLS.check({"estimator": estimator})
    return Arguments((log_probs, reference_log_probs), reduction, (estimator,), weight)


SPEC = element_loss(
    kl_estimate,
    "KLEstimateLoss",
    calls=CALLS,
    formula="exp(d) - 1 - d, d = reference_log_probs - log_probs",
    operands=(
        Operand("log_probs", "log-probabilities of the policy"),
        Operand("reference_log_probs", "log-probabilities of the reference"),
    ),
    parameters=(
        Parameter(
            *("estimator", 3.0, 1.0, "selects the estimator k1, k2 or k3", 1.0),
            maximum=3.0,
            is_integer=True,
            other=2.0,
        ),
    ),
    elements=_elements,
    functional=reduced(_as_written),
    temporaries=6,
    terms=Terms(
        _terms,
        "exp(d) - 1 - d and its derivative cancel where the policy agrees with the reference",
    ),
)
