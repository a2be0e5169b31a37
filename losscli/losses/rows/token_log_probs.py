"""Token log-probabilities of rows of logits, and the rows' entropy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from losscli.machine.pytorch import Tensor, torch

from ..calling import Arguments
from ..fields import LOSS, Operand, Relations, Terms, switch
from ..formulas import always, at_least_float32, reduce, weighted_sum
from ..making import row_loss
from .calls import RowCalls
from .logit_pairs import TEMPERATURE
from .spec import class_indices, of_last_rows
from .terms import LazyTerms, Softmax, WeightedSum


class _StackedCalls(RowCalls):
    """Calls of an operator that returns both values in one tensor."""

    def loss(self, given: Arguments, *site: int) -> Any:
        found = super().loss(given, *site)
        # DTensors are unbound already.
        one = isinstance(found, tuple) or not given.parameters[1]
        return found if one else found.unbind(0)

    def loss_with_grad(self, given: Arguments, *more: Any, **named: Any) -> Any:
        found, gradient = super().loss_with_grad(given, *more, **named)
        return found.unbind(0) if given.parameters[1] else found, gradient


def _reference(
    logits: Tensor, tokens: Tensor, *, reduction: str, temperature: float, entropy: float
) -> Tensor:
    (wide,), _ = at_least_float32(logits)
    logs = torch.log_softmax(wide / temperature, -1)
    found = logs.gather(-1, tokens.long().unsqueeze(-1)).squeeze(-1)
    if entropy:
        found = torch.stack([found, -weighted_sum(logs.exp(), logs)])
    return reduce(found, reduction)


def _terms(logits: Tensor, tokens: Tensor, *, temperature: float, entropy: float) -> LazyTerms:
    p = Softmax.of(logits, temperature)
    surprise = WeightedSum(p, p.log, p.size)
    number = tokens.long().unsqueeze(-1)

    def loss() -> Tensor:
        found = p.size.gather(-1, number).squeeze(-1)
        return torch.stack([found, surprise.total]) if entropy else found

    def slope() -> Tensor:
        found = p.weight.fmax(torch.zeros_like(p.weight).scatter(-1, number, 1.0))
        return (torch.stack([found, surprise.slope]) if entropy else found) / temperature

    return LazyTerms({LOSS: loss, "logits": slope})


def token_log_probs(
    logits: Tensor, tokens: Tensor, *, temperature: float = 1.0, entropy: bool = False
) -> Arguments:
    """Log-probability of each row's token and, if requested, the row's entropy.

    With p the softmax of ``logits / temperature``, they are ``log(p[token])`` and minus the sum of
    ``p * log(p)``, with 0 * log(0) = 0, as policy gradients of a language model need (GRPO, Shao et
    al. 2024, arXiv:2402.03300). Both have gradients, from one pass.

    Args:
        logits: ``(..., C)`` for C tokens; differentiable.

    Returns:
        The log-probabilities, ``(...)``, or with ``entropy`` these and the entropies; float32 for
        16-bit logits.
    """
    return Arguments((logits, tokens), "none", (temperature, float(entropy)))


SPEC = row_loss(
    token_log_probs,
    "TokenLogProbs",
    calls=_StackedCalls("token_log_probs"),
    formula="log(p[token]), with entropy also -(sum of p * log(p)), p = softmax(x / T)",
    operands=(
        Operand("logits", "logits"),
        class_indices("tokens", of_last_rows, "indices of tokens"),
    ),
    doubling="entropy",
    wide=True,
    reductions=("none",),
    parameters=(
        replace(TEMPERATURE, description="divides the logits"),
        switch("entropy", False, "return the entropy of each row as well"),
    ),
    reference=_reference,
    temporaries=6,
    relations=Relations(always, reordered=True),
    terms=Terms(_terms, "a log-probability is a logit less the log of a sum of exponentials"),
)
