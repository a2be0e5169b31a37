"""Total variation distance of the distributions of two sets of logits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..calling import Arguments
from ..spec import LOSS, LazyTerms
from .functors import RowCalls, RowFunctorSpec, RowModule
from .logit_pairs import (
    OPERANDS,
    ROLES,
    TEMPERATURE,
    arguments_of,
    counts,
    reference_of,
    terms_of,
)
from .relations import Relations, always
from .terms import Expectation, Softmax, known, masked

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch
    from torch import Tensor

PARAMETERS = (TEMPERATURE,)
CALLS = RowCalls("total_variation", PARAMETERS)


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


def reference(
    input: Tensor,
    target: Tensor,
    mask: Tensor | None = None,
    *,
    reduction: str,
    temperature: float = 1.0,
) -> Tensor:
    """The formula as a person writes it in PyTorch; 16 bits in float32."""
    return reference_of(_divergence, input, target, mask, temperature, reduction)


@CALLS.function
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

    Args:
        input: logits, ``(..., C)`` for C classes; differentiable.
        target: logits of the same shape; differentiable.
        temperature: divides both sets of logits; above 0.
        mask: bool, ``(...)``: the rows that count; None for all. The loss and the gradients of
            the others are 0, whatever they hold.
        reduction: ``none`` (one loss for each row), ``mean`` (over the rows that count, which are
            counted on the device) or ``sum`` (shape ``()``).

    A logit of -inf has a probability of 0, and 0 times infinity is 0.
    """
    return arguments_of(input, target, mask, reduction, temperature)


total_variation_with_grad = CALLS.with_grad(total_variation)


class TotalVariationLoss(RowModule):
    """See :func:`losscli.functional.total_variation`."""

    calls = CALLS
    function = total_variation

    def __init__(self, *, temperature: float = 1.0, reduction: str = "mean") -> None:
        super().__init__(temperature=temperature, reduction=reduction)

    def forward(self, input: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the loss of ``input`` and ``target``."""
        loss: Tensor = self._loss(input, target, mask=mask)
        return loss


SPEC = RowFunctorSpec(
    name="total_variation",
    formula="sum of |p - q| / 2, p = softmax(x / T), q = softmax(y / T)",
    operands=OPERANDS,
    roles=ROLES,
    parameters=PARAMETERS,
    reference=reference,
    loss=total_variation,
    loss_with_grad=total_variation_with_grad,
    module=TotalVariationLoss,
    widens=True,
    temporaries=8,
    counts=counts,
    relations=Relations(always, reordered=True, mirror="total_variation"),
    terms=terms_of(_terms),
    from_kinks=_from_kinks,
    undecided=_undecided,
)
