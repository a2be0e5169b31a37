"""Kullback-Leibler divergence of the distributions of two sets of logits."""

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
CALLS = RowCalls("kl_divergence", PARAMETERS)


def _divergence(log_p: Tensor, log_q: Tensor) -> Tensor:
    return expected(log_q.exp(), log_q - log_p)


def _terms(p: Softmax, q: Softmax, temperature: float) -> Mapping[str, Tensor]:
    surprise = Expectation(q, q.log - p.log, q.size.fmax(p.size))
    return divergence_terms(surprise, p, ("target", "input"), temperature)


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


kl_divergence_with_grad = CALLS.with_grad(kl_divergence)


class KLDivergenceLoss(RowModule):
    """See :func:`losscli.functional.kl_divergence`."""

    calls = CALLS
    function = kl_divergence

    def __init__(self, *, temperature: float = 1.0, reduction: str = "mean") -> None:
        super().__init__(temperature=temperature, reduction=reduction)

    def forward(self, input: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the loss of ``input`` and ``target``."""
        loss: Tensor = self._loss(input, target, mask=mask)
        return loss


SPEC = RowSpec(
    name="kl_divergence",
    formula="sum of q * log(q / p), p = softmax(x / T), q = softmax(y / T)",
    operands=OPERANDS,
    parameters=PARAMETERS,
    reference=reference,
    loss=kl_divergence,
    loss_with_grad=kl_divergence_with_grad,
    module=KLDivergenceLoss,
    widens=True,
    temporaries=9,
    counts=counts,
    relations=Relations(always, reordered=True, mirror="reverse_kl_divergence"),
    terms=terms_of(_terms),
)
