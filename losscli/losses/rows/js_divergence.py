"""Generalised Jensen-Shannon divergence of the distributions of two sets of logits."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ..calling import Arguments
from ..spec import LOSS, LazyTerms, Parameter
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
from .terms import Expectation, Softmax

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

PARAMETERS = (
    TEMPERATURE,
    Parameter("beta", 0.5, 0.0, "the target's part of the mixture", 0.3, maximum=1.0, open=True),
)
CALLS = RowCalls("js_divergence", PARAMETERS)


def _divergence(beta: float, log_q: Tensor, log_p: Tensor) -> Tensor:
    import torch

    p, q = log_p.exp(), log_q.exp()
    m = beta * p + (1 - beta) * q
    log_m = torch.where(m == 0, torch.ones_like(m), m).log()
    return beta * expected(p, log_p - log_m) + (1 - beta) * expected(q, log_q - log_m)


def _terms(q: Softmax, p: Softmax, temperature: float, *, beta: float) -> Mapping[str, Tensor]:
    m = beta * p.probability + (1 - beta) * q.probability
    # A logarithm moves by what its argument is off by, relative to it.
    size = m.log().abs().fmax((beta * p.weight + (1 - beta) * q.weight) / m)
    of_p = Expectation(p, p.log - m.log(), p.size.fmax(size))
    of_q = Expectation(q, q.log - m.log(), q.size.fmax(size))
    return LazyTerms(
        {
            LOSS: lambda: beta * of_p.total + (1 - beta) * of_q.total,
            "input": lambda: (1 - beta) * of_q.slope / temperature,
            "target": lambda: beta * of_p.slope / temperature,
        }
    )


def _mirrored(parameters: Mapping[str, float]) -> Mapping[str, float]:
    return {**parameters, "beta": 1 - parameters["beta"]}


def reference(
    input: Tensor,
    target: Tensor,
    mask: Tensor | None = None,
    *,
    reduction: str,
    temperature: float = 1.0,
    beta: float = 0.5,
) -> Tensor:
    """The formula as a person writes it in PyTorch; 16 bits in float32."""
    divergence = partial(_divergence, beta)
    return reference_of(divergence, input, target, mask, temperature, reduction)


@CALLS.function
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
        input: logits, ``(..., C)`` for C classes; differentiable.
        target: logits of the same shape; differentiable.
        beta: the weight of p in the mixture; above 0 and below 1.
        temperature: divides both sets of logits; above 0.
        mask: bool, ``(...)``: the rows that count; None for all. The loss and the gradients of
            the others are 0, whatever they hold.
        reduction: ``none`` (one loss for each row), ``mean`` (over the rows that count, which are
            counted on the device) or ``sum`` (shape ``()``).

    A logit of -inf has a probability of 0, and 0 times infinity is 0.
    """
    return arguments_of(input, target, mask, reduction, temperature, beta)


js_divergence_with_grad = CALLS.with_grad(js_divergence)


class JSDivergenceLoss(RowModule):
    """See :func:`losscli.functional.js_divergence`."""

    calls = CALLS
    function = js_divergence

    def __init__(
        self, *, beta: float = 0.5, temperature: float = 1.0, reduction: str = "mean"
    ) -> None:
        super().__init__(beta=beta, temperature=temperature, reduction=reduction)

    def forward(self, input: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the loss of ``input`` and ``target``."""
        loss: Tensor = self._loss(input, target, mask=mask)
        return loss


SPEC = RowSpec(
    name="js_divergence",
    formula="b * sum of p * log(p / m) + (1 - b) * sum of q * log(q / m), m = b * p + (1 - b) * q",
    operands=OPERANDS,
    parameters=PARAMETERS,
    reference=reference,
    loss=js_divergence,
    loss_with_grad=js_divergence_with_grad,
    module=JSDivergenceLoss,
    widens=True,
    temporaries=14,
    counts=counts,
    relations=Relations(always, reordered=True, mirror="js_divergence", mirrored=_mirrored),
    terms=terms_of(_terms),
)
