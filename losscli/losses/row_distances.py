"""Distances between the distributions of two sets of logits, as in distillation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import operators
from .row_functors import DistanceModule, RowFunctorSpec

if TYPE_CHECKING:
    from torch import Tensor


def _weighted_difference(weight: Tensor, log_p: Tensor, log_q: Tensor) -> Tensor:
    """Return the sum of weight * (log_p - log_q), where a weight of 0 makes any term 0."""
    import torch

    return (weight * torch.where(weight > 0, log_p - log_q, 0.0)).sum(-1)


def _kl_rows(log_p: Tensor, log_q: Tensor) -> Tensor:
    return _weighted_difference(log_q.exp(), log_q, log_p)


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
    KL_DIVERGENCE.check(reduction, temperature=temperature)
    loss: Tensor = operators.kl_divergence(input, target, mask, reduction, temperature)
    return loss


class KLDivergenceLoss(DistanceModule):
    """See :func:`losscli.functional.kl_divergence`."""

    def __init__(self, *, temperature: float = 1.0, reduction: str = "mean") -> None:
        super().__init__()
        self._set(reduction, temperature=temperature)

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

SPECS = (KL_DIVERGENCE,)
for _spec in SPECS:
    _spec.loss.__module__ = "losscli.functional"
