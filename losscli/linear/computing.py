"""Computes losses of hidden states by a plan, and their gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from . import chunks, slices, whole
from .plan import CHUNKS, SLICES, WHOLE, Plan
from .rows import Rows

_PLANS: dict[str, Any] = {WHOLE: whole, CHUNKS: chunks, SLICES: slices}


class Losses(torch.autograd.Function):
    """The losses of rows; second derivatives are those of PyTorch's operators."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, rows: Rows, plan: Plan
    ) -> tuple[Tensor, Tensor | None]:
        """Compute the losses, and of the gradients what the plan makes at once."""
        wanted = ctx.needs_input_grad[:3]
        kind = plan.kind if any(wanted) else SLICES
        losses, log_sums, kept = _PLANS[kind].forward(rows, plan, hidden, weight, bias, wanted)
        ctx.rows, ctx.plan = rows, plan
        if any(wanted):
            ctx.save_for_backward(hidden, weight, bias, *kept)
        if log_sums is not None:
            ctx.mark_non_differentiable(log_sums)
        return losses, log_sums

    @staticmethod
    def backward(ctx: Any, incoming: Tensor, _: Any) -> tuple[Any, ...]:
        """Compute the gradients."""
        hidden, weight, bias, *kept = ctx.saved_tensors
        wanted, operands = ctx.needs_input_grad[:3], (hidden, weight, bias)
        if not torch.is_grad_enabled():
            computed = _PLANS[ctx.plan.kind].backward
            return (*computed(ctx.rows, ctx.plan, incoming, *operands, kept, wanted), None, None)
        losses = _composed(ctx.rows, *operands)
        places = [k for k, wants in enumerate(wanted) if wants]
        found = torch.autograd.grad(
            losses, [operands[k] for k in places], incoming.to(losses.dtype), create_graph=True
        )
        return (*(found[places.index(k)] if k in places else None for k in range(3)), None, None)


def _composed(rows: Rows, hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return the losses by operators that are differentiable twice, of all logits at once."""
    logits, loss, settings = linear(hidden, weight, bias), torch.ops.losscli, rows.settings
    found: Tensor
    if not settings.entropy:
        rest = (rows.class_weight, rows.reduction, *map(float, settings[:5]))
        found = loss.cross_entropy(logits, rows.target, *rest)
        return found
    logits = logits / settings.temperature
    if settings.softcap:
        logits = settings.softcap * torch.tanh(logits / settings.softcap)
    found = loss.token_log_probs(logits, rows.known, "none", 1.0, 1.0)
    return found
