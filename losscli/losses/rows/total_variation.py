"""Total variation distance of the distributions of two sets of logits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..calling import Arguments
from ..spec import LOSS, LazyTerms
from .logit_pairs import arguments_of, divergence_loss
from .relations import Relations, always
from .terms import Expectation, Softmax

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor


def _divergence(log_p: Tensor, log_q: Tensor) -> Tensor:
    return (log_p.exp() - log_q.exp()).abs().sum(-1) / 2


def _terms(p: Softmax, q: Softmax, temperature: float) -> Mapping[str, Tensor]:
    import torch

    # The derivative of p is p times a sign less the expected sign.
    sign = (p.probability - q.probability).sign()
    of_p, of_q = (Expectation(each, sign, torch.ones_like(sign)) for each in (p, q))
    return LazyTerms(
        {
            LOSS: lambda: p.weight.fmax(q.weight).sum(-1) / 2,
            "input": lambda: of_p.slope / (2 * temperature),
            "target": lambda: of_q.slope / (2 * temperature),
        }
    )


def total_variation(
    input: Tensor,
    target: Tensor,
    *,
    temperature: float = 1.0,
    mask: Tensor | None = None,
    reduction: str = "mean",
) -> Arguments:
    """Total variation distance of ``softmax(input / T)`` and ``softmax(target / T)``.

    With p and q these two, a row's loss is half the sum of ``|p - q|`` (Wen et al. 2023,
    arXiv:2307.15190). Where ``p = q`` the derivative of the absolute value is 0.
    """
    return arguments_of(input, target, mask, reduction, temperature)


SPEC = divergence_loss(
    total_variation,
    "TotalVariationLoss",
    _divergence,
    _terms,
    formula="sum of |p - q| / 2, p = softmax(x / T), q = softmax(y / T)",
    temporaries=8,
    relations=Relations(always, reordered=True, mirror="total_variation"),
)
