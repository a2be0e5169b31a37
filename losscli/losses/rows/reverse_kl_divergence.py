"""Reverse Kullback-Leibler divergence of the distributions of two sets of logits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..calling import Arguments
from .calls import RowCalls, RowModule
from .logit_pairs import (
    OPERANDS,
    TEMPERATURE,
    arguments_of,
    counts,
    expected,
    reference_of,
    terms_of,
)
from .relations import Relations, always
from .spec import RowSpec
from .terms import Expectation, Softmax, divergence_terms

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

PARAMETERS = (TEMPERATURE,)
CALLS = RowCalls("reverse_kl_divergence", PARAMETERS)


def _divergence(log_p: Tensor, log_q: Tensor) -> Tensor:
    return expected(log_p.exp(), log_p - log_q)


def _terms(p: Softmax, q: Softmax, temperature: float) -> Mapping[str, Tensor]:
    surprise = Expectation(p, p.log - q.log, p.size.fmax(q.size))
    return divergence_terms(surprise, q, ("input", "target"), temperature)


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


reverse_kl_divergence_with_grad = CALLS.with_grad(reverse_kl_divergence)


class ReverseKLDivergenceLoss(RowModule):
    """See :func:`losscli.functional.reverse_kl_divergence`."""

    calls = CALLS
    function = reverse_kl_divergence

    def __init__(self, *, temperature: float = 1.0, reduction: str = "mean") -> None:
        super().__init__(temperature=temperature, reduction=reduction)

    def forward(self, input: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the loss of ``input`` and ``target``."""
        loss: Tensor = self._loss(input, target, mask=mask)
        return loss


SPEC = RowSpec(
    name="reverse_kl_divergence",
    formula="sum of p * log(p / q), p = softmax(x / T), q = softmax(y / T)",
    operands=OPERANDS,
    parameters=PARAMETERS,
    reference=reference,
    loss=reverse_kl_divergence,
    loss_with_grad=reverse_kl_divergence_with_grad,
    module=ReverseKLDivergenceLoss,
    widens=True,
    temporaries=9,
    counts=counts,
    relations=Relations(always, reordered=True, mirror="kl_divergence"),
    terms=terms_of(_terms),
)
