"""Generalised Jensen-Shannon divergence of the distributions of two sets of logits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..calling import Arguments
from ..parameter import Parameter
from ..spec import LOSS, LazyTerms
from .logit_pairs import TEMPERATURE, arguments_of, divergence_loss, weighted_sum
from .relations import Relations, always
from .terms import Softmax, WeightedSum

if TYPE_CHECKING:
    from torch import Tensor


def _divergence(log_q: Tensor, log_p: Tensor, *, beta: float) -> Tensor:
    import torch

    p, q = log_p.exp(), log_q.exp()
    m = beta * p + (1 - beta) * q
    log_m = torch.where(m == 0, torch.ones_like(m), m).log()
    return beta * weighted_sum(p, log_p - log_m) + (1 - beta) * weighted_sum(q, log_q - log_m)


def _terms(q: Softmax, p: Softmax, temperature: float, *, beta: float) -> Mapping[str, Tensor]:
    m = beta * p.probability + (1 - beta) * q.probability
    # A logarithm moves by what its argument is off by, relative to it.
    size = m.log().abs().fmax((beta * p.weight + (1 - beta) * q.weight) / m)
    of_p = WeightedSum(p, p.log - m.log(), p.size.fmax(size))
    of_q = WeightedSum(q, q.log - m.log(), q.size.fmax(size))
    return LazyTerms(
        {
            LOSS: lambda: beta * of_p.total + (1 - beta) * of_q.total,
            "input": lambda: (1 - beta) * of_q.slope / temperature,
            "target": lambda: beta * of_p.slope / temperature,
        }
    )


def _mirrored(parameters: Mapping[str, float]) -> Mapping[str, float]:
    return {**parameters, "beta": 1 - parameters["beta"]}


def js_divergence(
    input: Tensor,
    target: Tensor,
    *,
    beta: float = 0.5,
    temperature: float = 1.0,
    mask: Tensor | None = None,
    reduction: str = "mean",
) -> Arguments:
    """Generalised Jensen-Shannon divergence of two sets of logits.

    With p the softmax of ``target / T``, q that of ``input / T`` and
    ``m = beta * p + (1 - beta) * q``, a row's loss is ``beta * sum of p * log(p / m) + (1 - beta) *
    sum of q * log(q / m)`` (Agarwal et al. 2023, arXiv:2306.13649: p is the teacher's, q the
    student's). It is symmetric for ``beta = 0.5``.

    Args:
        beta: the weight of p in the mixture; above 0 and below 1.
    """
    return arguments_of(input, target, mask, reduction, temperature, beta)


SPEC = divergence_loss(
    js_divergence,
    "JSDivergenceLoss",
    _divergence,
    _terms,
    parameters=(
        TEMPERATURE,
        Parameter("beta", 0.5, 0.0, "the target's part of the mixture", 0.3, 1.0, open=True),
    ),
    formula="b * sum of p * log(p / m) + (1 - b) * sum of q * log(q / m), m = b * p + (1 - b) * q",
    temporaries=14,
    relations=Relations(always, reordered=True, mirror="js_divergence", mirrored=_mirrored),
)
