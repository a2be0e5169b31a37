"""Distances between the distributions of two sets of logits, as in distillation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .row_functors import TEMPERATURE, DistanceModule, RowFunctorSpec, TemperedModule
from .spec import Parameter

if TYPE_CHECKING:
    from torch import Tensor


def _weighted_difference(weight: Tensor, log_p: Tensor, log_q: Tensor) -> Tensor:
    """Return the sum of weight * (log_p - log_q), where a weight of 0 makes any term 0."""
    import torch

    return (weight * torch.where(weight > 0, log_p - log_q, 0.0)).sum(-1)


def _kl_rows(log_p: Tensor, log_q: Tensor) -> Tensor:
    return _weighted_difference(log_q.exp(), log_q, log_p)


def _reverse_kl_rows(log_p: Tensor, log_q: Tensor) -> Tensor:
    return _weighted_difference(log_p.exp(), log_p, log_q)


def _soft_cross_entropy_rows(log_p: Tensor, log_q: Tensor) -> Tensor:
    import torch

    q = log_q.exp()
    return -(q * torch.where(q > 0, log_p, 0.0)).sum(-1)


def _total_variation_rows(log_p: Tensor, log_q: Tensor) -> Tensor:
    return (log_p.exp() - log_q.exp()).abs().sum(-1) / 2


def _js_rows(log_p: Tensor, log_q: Tensor, beta: float) -> Tensor:
    import torch

    p, q = log_p.exp(), log_q.exp()
    mixture = beta * q + (1 - beta) * p
    # Where both are 0, whatever is left out of the sum, without the infinite slope of log at 0.
    log_m = torch.where(mixture > 0, mixture, 1.0).log()
    of_target = _weighted_difference(q, log_q, log_m)
    return beta * of_target + (1 - beta) * _weighted_difference(p, log_p, log_m)


def kl_divergence(
    input: Tensor,
    target: Tensor,
    *,
    temperature: float = 1.0,
    mask: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Return KL(softmax(target / T) || softmax(input / T)) of rows of logits.

    The sum over the last dimension of ``q * (log q - log p)``, p from ``input`` and q from
    ``target``; a class with q = 0 adds 0. It is differentiable in both. Detach the teacher's logits
    and their gradient is not computed. The square of the temperature, by which distillation often
    multiplies the loss, is left to the caller.

    Args:
        input: Logits of the student, of shape (..., C).
        target: Logits of the teacher, of the same shape.
        temperature: Divides both.
        mask: Of shape (...), bool: which rows count. Rows left out are not read.
        reduction: ``none`` for one value for each row, 0 where the mask leaves it out; ``sum``;
            ``mean``, over the rows that count: NaN where none does.

    Returns:
        The loss, in the dtype that the two sets of logits are promoted to.
    """
    return KL_DIVERGENCE.compute(input, target, mask, reduction, temperature=temperature)


class KLDivergenceLoss(TemperedModule):
    """See :func:`losscli.functional.kl_divergence`."""

    @staticmethod
    def spec() -> RowFunctorSpec:
        """Return the spec of the loss."""
        return KL_DIVERGENCE


KL_DIVERGENCE = RowFunctorSpec(
    name="kl_divergence",
    formula="sum of q * (log q - log p), p = softmax(x / T), q = softmax(t / T)",
    rows=_kl_rows,
    loss=kl_divergence,
    module=KLDivergenceLoss,
)


def reverse_kl_divergence(
    input: Tensor,
    target: Tensor,
    *,
    temperature: float = 1.0,
    mask: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Return KL(softmax(input / T) || softmax(target / T)) of rows of logits.

    The sum over the last dimension of ``p * (log p - log q)``, p from ``input`` and q from
    ``target``; a class with p = 0 adds 0. The arguments are those of :func:`kl_divergence`.
    """
    return REVERSE_KL_DIVERGENCE.compute(input, target, mask, reduction, temperature=temperature)


class ReverseKLDivergenceLoss(TemperedModule):
    """See :func:`losscli.functional.reverse_kl_divergence`."""

    @staticmethod
    def spec() -> RowFunctorSpec:
        """Return the spec of the loss."""
        return REVERSE_KL_DIVERGENCE


REVERSE_KL_DIVERGENCE = RowFunctorSpec(
    name="reverse_kl_divergence",
    formula="sum of p * (log p - log q), p = softmax(x / T), q = softmax(t / T)",
    rows=_reverse_kl_rows,
    loss=reverse_kl_divergence,
    module=ReverseKLDivergenceLoss,
)


def soft_cross_entropy(
    input: Tensor,
    target: Tensor,
    *,
    temperature: float = 1.0,
    mask: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Return the cross entropy of rows of logits with probabilities softmax(target / T).

    The sum over the last dimension of ``-q * log p``, p from ``input`` and q from ``target``; a
    class with q = 0 adds 0. The arguments are those of :func:`kl_divergence`.
    """
    return SOFT_CROSS_ENTROPY.compute(input, target, mask, reduction, temperature=temperature)


class SoftCrossEntropyLoss(TemperedModule):
    """See :func:`losscli.functional.soft_cross_entropy`."""

    @staticmethod
    def spec() -> RowFunctorSpec:
        """Return the spec of the loss."""
        return SOFT_CROSS_ENTROPY


SOFT_CROSS_ENTROPY = RowFunctorSpec(
    name="soft_cross_entropy",
    formula="-sum of q * log p, p = softmax(x / T), q = softmax(t / T)",
    rows=_soft_cross_entropy_rows,
    loss=soft_cross_entropy,
    module=SoftCrossEntropyLoss,
)


def js_divergence(
    input: Tensor,
    target: Tensor,
    *,
    beta: float = 0.5,
    temperature: float = 1.0,
    mask: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Return the generalised Jensen-Shannon divergence of rows of logits.

    ``beta * KL(q || m) + (1 - beta) * KL(p || m)`` with ``m = beta * q + (1 - beta) * p``, p from
    ``input`` and q from ``target``, as in generalised knowledge distillation (Agarwal et al.,
    2024). The arguments are those of :func:`kl_divergence`, and ``beta``, the
    share of the target, between 0 and 1.
    """
    parameters = {"temperature": temperature, "beta": beta}
    return JS_DIVERGENCE.compute(input, target, mask, reduction, **parameters)


class JSDivergenceLoss(DistanceModule):
    """See :func:`losscli.functional.js_divergence`."""

    def __init__(
        self,
        *,
        beta: float = 0.5,
        temperature: float = 1.0,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        self._set(reduction, temperature=temperature, beta=beta)

    @staticmethod
    def spec() -> RowFunctorSpec:
        """Return the spec of the loss."""
        return JS_DIVERGENCE


_BETA = Parameter("beta", 0.5, 0.0, "share of the target", 0.3, 1.0, open=True)
JS_DIVERGENCE = RowFunctorSpec(
    name="js_divergence",
    formula="beta * KL(q || m) + (1 - beta) * KL(p || m), m = beta * q + (1 - beta) * p",
    rows=_js_rows,
    parameters=(TEMPERATURE, _BETA),
    loss=js_divergence,
    module=JSDivergenceLoss,
)


def total_variation(
    input: Tensor,
    target: Tensor,
    *,
    temperature: float = 1.0,
    mask: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Return the total variation distance of rows of logits.

    Half of the sum over the last dimension of ``|p - q|``, p from ``input`` and q from ``target``.
    The gradient takes 0 as the slope where p = q. The arguments are those of :func:`kl_divergence`.
    """
    return TOTAL_VARIATION.compute(input, target, mask, reduction, temperature=temperature)


class TotalVariationLoss(TemperedModule):
    """See :func:`losscli.functional.total_variation`."""

    @staticmethod
    def spec() -> RowFunctorSpec:
        """Return the spec of the loss."""
        return TOTAL_VARIATION


TOTAL_VARIATION = RowFunctorSpec(
    name="total_variation",
    formula="sum of |p - q| / 2, p = softmax(x / T), q = softmax(t / T)",
    rows=_total_variation_rows,
    loss=total_variation,
    module=TotalVariationLoss,
)

SPECS = (KL_DIVERGENCE, REVERSE_KL_DIVERGENCE, SOFT_CROSS_ENTROPY, JS_DIVERGENCE, TOTAL_VARIATION)
for _spec in SPECS:
    _spec.loss.__module__ = "losscli.functional"
