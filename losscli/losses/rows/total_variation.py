"""Total variation distance of the distributions of two sets of logits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..calling import Arguments
from ..spec import LOSS, LazyTerms
from .logit_pairs import arguments_of, divergence_loss
from .relations import Relations, always
from .terms import Softmax, WeightedSum, known, masked

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def _divergence(log_p: Tensor, log_q: Tensor) -> Tensor:
    return (log_p.exp() - log_q.exp()).abs().sum(-1) / 2


def _terms(p: Softmax, q: Softmax, temperature: float) -> Mapping[str, Tensor]:
    import torch

    # The derivative of p is p times a sign less the expected sign.
    sign = (p.probability - q.probability).sign()
    of_p, of_q = (WeightedSum(each, sign, torch.ones_like(sign)) for each in (p, q))
    return LazyTerms(
        {
            LOSS: lambda: p.weight.fmax(q.weight).sum(-1) / 2,
            "input": lambda: of_p.slope / (2 * temperature),
            "target": lambda: of_q.slope / (2 * temperature),
        }
    )


def _from_kinks(
    input: Tensor, target: Tensor, mask: Tensor | None = None, *, temperature: float = 1.0
) -> tuple[Tensor, ...]:
    import torch

    log_p, log_q = (torch.log_softmax(each / temperature, -1) for each in (input, target))
    # A logit that is moved away from a tie moves the other probabilities of its row.
    return (temperature * (log_p - log_q),) * 3


def _undecided(
    input: Tensor,
    target: Tensor,
    mask: Tensor | None = None,
    *,
    dtype: torch.dtype,
    ulp: float,
    temperature: float = 1.0,
) -> Mapping[str, Tensor]:
    """Return by how much rounding may move the derivatives where p and q nearly agree.

    A kernel takes the sign of the difference of two rounded probabilities. It is that of ``p - q``
    where the difference is larger than both errors together; below that either sign is right, and
    0. Rows of equal logits alone are known to have a difference of 0. The derivative for ``x`` is
    ``p * (sign - sum of p * sign) / (2 * T)``. Where the sign is undecided it moves by up to 2; it
    also moves the sum by its own p, and with that the derivatives for the other elements of the
    row. So the derivative may be off by ``p * (2 [if undecided] + sum of 2 * p over the undecided)
    / (2 * T)``, that for the target likewise with q. The loss is off by the difference at most.
    """
    p, q = Softmax.of(input, temperature), Softmax.of(target, temperature)
    difference = (p.probability - q.probability).abs()
    is_close = difference <= p.error(dtype, ulp) + q.error(dtype, ulp)
    moved = 2 * (is_close & (input != target).any(-1, keepdim=True)).to(input.dtype)

    def of(own: Tensor) -> Tensor:
        return known(own * (moved + (own * moved).sum(-1, keepdim=True)) / (2 * temperature))

    return masked(
        LazyTerms({"input": lambda: of(p.probability), "target": lambda: of(q.probability)}), mask
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
    from_kinks=_from_kinks,
    undecided=_undecided,
)
