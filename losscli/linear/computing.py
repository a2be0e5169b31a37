"""Computes fused linear losses and their gradients by a plan."""

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from losscli.losses.formulas import widened
from losscli.losses.linear.logits_plan import Plan

from . import products
from .parts import refuse_second_derivatives
from .plans import PLANS
from .products import Layer
from .rows import Rows

_FORMULA_BYTES = 2**28
"""What the formula of some rows takes without a budget."""
_TENSORS = 8
"""The tensors of the logits' size that the formula and its backward hold at once."""


class Losses(torch.autograd.Function):
    """The losses of rows; second derivatives use PyTorch's operators."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, rows: Rows, plan: Plan
    ) -> tuple[Tensor, Tensor | None]:
        """Return the losses and any log-sum-exps."""
        wanted = ctx.needs_input_grad[:3]
        with _without_autocast(hidden):
            forward, _ = PLANS[plan.kind]
            losses, log_sums, kept = forward(rows, plan, Layer(hidden, weight, bias), wanted)
        ctx.rows, ctx.plan = replace(rows, target=rows.target[:0], class_weight=None), plan
        if any(wanted):
            ctx.save_for_backward(hidden, weight, bias, rows.target, rows.class_weight, *kept)
        if log_sums is not None:
            ctx.mark_non_differentiable(log_sums)
        return losses, log_sums

    @staticmethod
    def backward(ctx: Any, incoming: Tensor, _: Any) -> tuple[Any, ...]:
        """Return the gradients of hidden states, weight and bias."""
        hidden, weight, bias, target, class_weight, *kept = ctx.saved_tensors
        rows = replace(ctx.rows, target=target, class_weight=class_weight)
        wanted, layer = ctx.needs_input_grad[:3], Layer(hidden, weight, bias)
        with _without_autocast(hidden):
            if not torch.is_grad_enabled():
                _, computed = PLANS[ctx.plan.kind]
                return (*computed(rows, ctx.plan, layer, incoming, kept, wanted), None, None)
            if rows.shard:
                refuse_second_derivatives(rows.shard.name)
            # Views, so that relations between operands do not enter the gradient.
            views: list[Any] = [None if x is None else x.view_as(x) for x in layer]
            losses, _ = composed(rows, Layer(*views))
            places = [k for k, wants in enumerate(wanted) if wants]
            of_views = torch.autograd.grad(
                losses, [views[k] for k in places], incoming.to(losses.dtype), create_graph=True
            )
        of_operands = (of_views[places.index(k)] if k in places else None for k in range(3))
        return (*of_operands, None, None)


def _without_autocast(tensor: Tensor) -> AbstractContextManager[None]:
    return torch.autocast(tensor.device.type, enabled=False)


def by_formula(rows: Rows, layer: Layer, budget: int | None) -> tuple[Tensor, Tensor | None]:
    """Return losses and log-sum-exps by PyTorch's formula, some rows at a time."""
    classes, item = len(layer.weight), max(layer.hidden.element_size(), 4)
    most = max((_FORMULA_BYTES if budget is None else budget) // (classes * item * _TENSORS), 1)
    found = []
    with _without_autocast(layer.hidden):
        for part in products.parts(len(rows.target), most):
            own = replace(rows, target=rows.target[part], reduction="none")
            layer_of_part = layer.of_rows(part)
            found.append(checkpoint(composed, own, layer_of_part, wide=True, use_reentrant=False))
    losses = torch.cat([each for each, _ in found], -1)
    log_sums = torch.cat([each for _, each in found]) if rows.with_log_sums else None
    return (losses if rows.settings.entropy else rows.reduced(losses)[0]), log_sums


def composed(rows: Rows, layer: Layer, *, wide: bool = False) -> tuple[Tensor, Tensor | None]:
    """Return losses and any log-sum-exps of all logits, traceable, or in float32 (``wide``)."""
    logits, loss, settings = layer.logits(), torch.ops.losscli, rows.settings
    logits = logits.to(widened(logits.dtype)) if wide else logits
    bent = logits / settings.temperature
    if settings.softcap:
        bent = settings.softcap * torch.tanh(bent / settings.softcap)
    log_sums = None
    if rows.with_log_sums:
        log_sums = torch.logsumexp(bent.detach().to(widened(bent.dtype)), 1)
    if settings.entropy:
        found = loss.token_log_probs(bent, rows.known, "none", 1.0, 1.0)
        ignored = rows.ignored
        return (found if ignored is None else found.masked_fill(ignored, 0.0)), log_sums
    rest = (rows.class_weight, rows.reduction, *map(float, settings[:5]))
    return loss.cross_entropy(logits, rows.target, *rest), log_sums
