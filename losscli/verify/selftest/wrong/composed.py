"""Composed losses that are wrong on purpose: of hidden states, and of k classes."""

from collections.abc import Callable

import torch
from msgspec.structs import replace
from torch import Tensor

from losscli.cases.case import Case
from losscli.losses import LinearSpec, find_loss
from losscli.losses.formulas import weighted_sum
from losscli.losses.linear.spec import logits_of
from losscli.losses.rows.forms import IGNORE_INDEX, NO_INDEX
from losscli.losses.rows.topk_kl_divergence import bins_of_both, divergence_of
from losscli.verify.selftest.surgery import formula, reduced_where, regrade

_CHUNK = 8
Pair = tuple[Tensor, Tensor]
"""The bins of the student and of the teacher."""


def on_logits(mistake: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return the fused linear loss with a row-wise mistake in the loss of its logits."""

    def loss(case: Case, hidden: Tensor, numbers: Tensor, weight: Tensor, *bias: Tensor) -> Tensor:
        of_logits = _of_logits(case)
        logits = logits_of(hidden, weight, bias[0] if bias else None)
        return _as_tokens(case, mistake(of_logits, logits, numbers.reshape(-1)), numbers)

    return loss


def _as_tokens(case: Case, loss: Tensor, numbers: Tensor) -> Tensor:
    assert isinstance(case.spec, LinearSpec)
    return case.spec.sign * (loss.view(numbers.shape) if case.reduction == "none" else loss)


def _of_logits(case: Case) -> Case:
    spec = find_loss("cross_entropy")
    tokens, _, classes = case.shape
    own = {name: value for name, value in case.params.items() if name in spec.resolve({})}
    params = spec.resolve({IGNORE_INDEX.name: NO_INDEX, **own})
    shape, target_shape = (tokens, classes), (tokens,)
    return replace(case, loss=spec.name, params=params, shape=shape, target_shape=target_shape)


def filtered(case: Case, logits: Tensor, numbers: Tensor) -> Tensor:
    """Skips the gradients of improbable classes, as some kernels do."""
    with torch.no_grad():
        improbable = torch.softmax(logits.float() / case.params["temperature"], 1) < 2.0**-12
        known = numbers.clamp(0, logits.shape[1] - 1).long().unsqueeze(1)
        improbable.scatter_(1, known, torch.zeros_like(known, dtype=torch.bool))
    return formula(case, regrade(logits, lambda g: g.masked_fill(improbable, 0)), numbers)


def narrow_sums(
    case: Case, hidden: Tensor, numbers: Tensor, weight: Tensor, *bias: Tensor
) -> Tensor:
    """Accumulates the weight's gradient in bfloat16, chunk by chunk."""
    rows, incoming = hidden.reshape(numbers.numel(), -1), list[Tensor]()

    def narrow(gradient: Tensor) -> Tensor:
        total = torch.zeros_like(gradient, dtype=torch.bfloat16)
        for g, h in zip(incoming[-1].split(_CHUNK), rows.detach().split(_CHUNK), strict=True):
            total += (g.t() @ h).bfloat16()
        return total.to(gradient.dtype)

    logits = regrade(torch.nn.functional.linear(rows, regrade(weight, narrow)), incoming.append)
    logits = logits + bias[0] if bias else logits
    return _as_tokens(case, formula(_of_logits(case), logits, numbers.reshape(-1)), numbers)


def of_bins(change: Callable[[Case, Tensor, Tensor], Pair]) -> Callable[..., Tensor]:
    """Return the loss with a mistake in the bins."""

    def loss(case: Case, *operands: Tensor) -> Tensor:
        pair, mask = _bins(case, *operands)
        divergence = divergence_of(case.params["reverse"])
        return divergence.reference(*change(case, *pair), mask, reduction=case.reduction)

    return loss


def _bins(
    case: Case, input: Tensor, classes: Tensor, target: Tensor, mask: Tensor | None = None
) -> tuple[Pair, Tensor | None]:
    return bins_of_both(input, classes, target, mask, case.params["temperature"]), mask


def _rest_as_a_difference(case: Case, p: Tensor, q: Tensor) -> Pair:
    """Computes the rest as 1 minus the other classes, which loses digits."""
    logs = p.log_softmax(-1)
    rest = 1 - logs[..., :-1].exp().sum(-1, keepdim=True)
    return torch.cat([logs[..., :-1], rest.clamp_min(torch.finfo(p.dtype).tiny).log()], -1), q


MISTAKES: dict[str, Callable[[Case, Tensor, Tensor], Pair]] = {
    "rest left out": lambda case, p, q: (p[..., :-1], q[..., :-1]),
    "no gradient of the rest": lambda case, p, q: (
        torch.cat([p[..., :-1], p[..., -1:].detach()], -1),
        q,
    ),
    "rest as a difference": _rest_as_a_difference,
    "temperature of both": lambda case, p, q: (p, q / case.params["temperature"]),
}


def sum_above_one(case: Case, *operands: Tensor) -> Tensor:
    """Accepts probabilities that sum to more than 1."""
    (p, q), mask = _bins(case, *operands)
    logs = p.log_softmax(-1)
    first, second = (logs, q) if case.params["reverse"] else (q, logs)
    return reduced_where(case, weighted_sum(first.exp(), first - second), mask)
