"""Losses of hidden states that are wrong on purpose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from msgspec.structs import replace
from torch import Tensor
from torch.nn.functional import linear

from losscli.cases.case import Case
from losscli.losses import LinearSpec, find_loss
from losscli.losses.linear.spec import logits_of
from losscli.losses.rows.forms import IGNORE_INDEX, NO_INDEX
from losscli.verify.selftest.formula import formula
from losscli.verify.selftest.surgery import regrade

_LEAST = 2.0**-12
"""A probability below which some leave a gradient out."""
_CHUNK = 8
"""Tokens of a chunk."""


def on_logits(mistake: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return the loss of hidden states whose logits have a loss over rows with a mistake."""

    def loss(case: Case, hidden: Tensor, numbers: Tensor, weight: Tensor, *bias: Tensor) -> Tensor:
        of_logits = _of_logits(case)
        logits = logits_of(hidden, weight, bias[0] if bias else None)
        return _as_tokens(case, mistake(of_logits, logits, numbers.reshape(-1)), numbers)

    return loss


def _as_tokens(case: Case, loss: Tensor, numbers: Tensor) -> Tensor:
    """Return the loss of hidden states from the cross entropy of their logits."""
    assert isinstance(case.spec, LinearSpec)
    return case.spec.sign * (loss.view(numbers.shape) if case.reduction == "none" else loss)


def _of_logits(case: Case) -> Case:
    """Return the case of the cross entropy of the logits."""
    spec = find_loss("cross_entropy")
    tokens, _, classes = case.shape
    own = {name: value for name, value in case.params.items() if name in spec.resolve({})}
    params: Any = spec.resolve({IGNORE_INDEX.name: NO_INDEX, **own})
    shapes: Any = {"shape": (tokens, classes), "target_shape": (tokens,)}
    return replace(case, loss=spec.name, params=params, **shapes)


def filtered(case: Case, logits: Tensor, numbers: Tensor) -> Tensor:
    """Leaves the gradients of improbable classes out."""
    with torch.no_grad():
        improbable = torch.softmax(logits.float() / case.params["temperature"], 1) < _LEAST
        known = numbers.clamp(0, logits.shape[1] - 1).long().unsqueeze(1)
        improbable.scatter_(1, known, torch.zeros_like(known, dtype=torch.bool))
    return formula(case, regrade(logits, lambda g: g.masked_fill(improbable, 0)), numbers)


class NarrowSums(torch.autograd.Function):
    """A linear layer that adds up the gradient of its weight in bfloat16, chunk by chunk."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor) -> Tensor:
        """Return the logits."""
        ctx.save_for_backward(hidden, weight)
        return linear(hidden, weight)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return both gradients."""
        hidden, weight = ctx.saved_tensors
        (gradient,) = grad_outputs
        total = torch.zeros_like(weight, dtype=torch.bfloat16)
        for g, h in zip(gradient.split(_CHUNK), hidden.split(_CHUNK), strict=True):
            total += (g.t() @ h).bfloat16()
        return gradient @ weight, total.to(weight.dtype)


def narrow_sums(
    case: Case, hidden: Tensor, numbers: Tensor, weight: Tensor, *bias: Tensor
) -> Tensor:
    """Adds up the gradient of the weight in bfloat16."""
    rows = hidden.reshape(numbers.numel(), -1)
    logits = NarrowSums.apply(rows, weight)  # type: ignore[no-untyped-call]
    logits = logits + bias[0] if bias else logits
    return _as_tokens(case, formula(_of_logits(case), logits, numbers.reshape(-1)), numbers)
