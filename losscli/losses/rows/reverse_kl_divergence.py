"""Reverse Kullback-Leibler divergence of the distributions of two sets of logits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..calling import Arguments
from .logit_pairs import arguments_of, divergence_loss, weighted_sum
from .relations import Relations, always
from .terms import Softmax, WeightedSum, divergence_terms

if TYPE_CHECKING:
    from torch import Tensor


def _divergence(log_p: Tensor, log_q: Tensor) -> Tensor:
    return weighted_sum(log_p.exp(), log_p - log_q)


def _terms(p: Softmax, q: Softmax, temperature: float) -> Mapping[str, Tensor]:
    surprise = WeightedSum(p, p.log - q.log, p.size.fmax(q.size))
    return divergence_terms(surprise, q, ("input", "target"), temperature)


def reverse_kl_divergence(
    input: Tensor,
    target: Tensor,
    *,
    temperature: float = 1.0,
    mask: Tensor | None = None,
    reduction: str = "mean",
) -> Arguments:
    """Kullback-Leibler divergence of ``softmax(target / T)`` from ``softmax(input / T)``.

    With p the softmax of the input and q that of the target, a row's loss is the sum of
    ``p * log(p / q)``: the divergence that seeks a mode of the target (MiniLLM, Gu et al. 2023,
    arXiv:2306.08543).
    """
    return arguments_of(input, target, mask, reduction, temperature)


SPEC = divergence_loss(
    reverse_kl_divergence,
    "ReverseKLDivergenceLoss",
    _divergence,
    _terms,
    header="kl_divergence",
    formula="sum of p * log(p / q), p = softmax(x / T), q = softmax(y / T)",
    temporaries=9,
    relations=Relations(always, reordered=True, mirror="kl_divergence"),
)
