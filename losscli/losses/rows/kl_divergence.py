"""Kullback-Leibler divergence of the distributions of two sets of logits."""

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
    return weighted_sum(log_q.exp(), log_q - log_p)


def _terms(p: Softmax, q: Softmax, temperature: float) -> Mapping[str, Tensor]:
    surprise = WeightedSum(q, q.log - p.log, q.size.fmax(p.size))
    return divergence_terms(surprise, p, ("target", "input"), temperature)


def kl_divergence(
    input: Tensor,
    target: Tensor,
    *,
    temperature: float = 1.0,
    mask: Tensor | None = None,
    reduction: str = "mean",
) -> Arguments:
    """Kullback-Leibler divergence of ``softmax(input / T)`` from ``softmax(target / T)``.

    With p and q these two, a row's loss is the sum of ``q * log(q / p)``: the forward divergence of
    distillation, of a student's logits and a teacher's (Hinton et al. 2015, arXiv:1503.02531,
    without its factor T^2).
    """
    return arguments_of(input, target, mask, reduction, temperature)


SPEC = divergence_loss(
    kl_divergence,
    "KLDivergenceLoss",
    _divergence,
    _terms,
    formula="sum of q * log(q / p), p = softmax(x / T), q = softmax(y / T)",
    temporaries=9,
    relations=Relations(always, reordered=True, mirror="reverse_kl_divergence"),
)
