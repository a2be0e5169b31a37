"""Computes fused linear losses by a plan; see losscli/losses/linear/logits_plan.py.

A plan's forward returns the losses, the log-sum-exps and what backward needs; its backward returns
the gradients of hidden states, weight and bias.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from losscli.losses.formulas import widened
from losscli.losses.linear.logits_plan import CHUNKS, ROWS, SLICES, WHOLE, Plan

from . import products
from .kernels import log_sums_of, losses_in_place
from .parts import Found, Part, Rows, finished, refuse_second_derivatives, scaled
from .products import Layer

Wanted = tuple[bool, ...]
"""Whether hidden states, weight and bias need a gradient."""
Results = tuple[Tensor, Tensor | None, list[Any]]


def _whole_forward(rows: Rows, _: Plan, layer: Layer, __: Wanted) -> Results:
    logits = layer.logits()
    log_sums = log_sums_of(logits, rows.settings) if rows.with_log_sums else None
    # A float16 gradient divided by the number of rows would underflow for most classes.
    divided = rows.reduction == "mean" and logits.dtype != torch.float16
    reduction = "mean" if divided else "none"
    apart = rows.weigh_apart(logits.dtype)
    class_weight = None if apart else rows.class_weight
    losses = losses_in_place(logits, rows.target, class_weight, rows.settings, reduction)
    losses = rows.weighted(losses) if apart else losses
    losses, factor = (losses, losses.new_ones(())) if divided else rows.reduced(losses)
    return losses, log_sums, [logits, factor]


def _whole_backward(
    rows: Rows, _: Plan, layer: Layer, incoming: Tensor, kept: list[Tensor], wanted: Wanted
) -> list[Tensor | None]:
    hidden, weight = layer[:2]
    gradient, factor = kept
    of_rows = (incoming * factor).expand(len(hidden))
    if rows.weigh_apart(hidden.dtype):
        of_rows = rows.weighted(of_rows)
    elif rows.ignored is not None:
        of_rows = of_rows.masked_fill(rows.ignored, 0.0)
    column = of_rows.unsqueeze(1)
    found: list[Tensor | None] = [None, None, None]
    # First the scaled hidden states, then their gradient.
    scaled = torch.empty_like(hidden)
    if wanted[1]:
        found[1] = of_weight = gradient.new_empty((gradient.shape[1], hidden.shape[1]))
        power = products.times_rows(hidden, of_rows, out=scaled)
        products.weight_gradient(gradient, scaled, power, of_weight)
    if wanted[2]:
        found[2] = products.row_sums(gradient, of_rows).to(weight.dtype)
    if wanted[0]:
        found[0] = scaled
        for part in products.parts(len(hidden), ROWS):
            torch.mul(products.wide(gradient[part], weight), column[part], out=scaled[part])
    return found


def _chunks_forward(rows: Rows, plan: Plan, layer: Layer, wanted: Wanted) -> Results:
    hidden, weight, _ = layer
    of_weight = of_bias = None
    losses, log_sums, of_hidden = [], [], []
    for part in products.parts(len(hidden), plan.part):
        logits, target = layer.of_rows(part).logits(), rows.target[part]
        if rows.with_log_sums:
            log_sums.append(log_sums_of(logits, rows.settings))
        losses.append(losses_in_place(logits, target, rows.class_weight, rows.settings, "none"))
        if wanted[0]:
            of_hidden.append(products.wide(logits, weight))
        if wanted[1]:
            of_weight = products.add(of_weight, logits.t(), hidden[part])
        if wanted[2]:
            sums = logits.sum(0, dtype=widened(logits.dtype))
            of_bias = sums if of_bias is None else of_bias.add_(sums)
        del logits
    total, factor = rows.reduced(torch.cat(losses))
    kept = [torch.cat(of_hidden) if of_hidden else None, of_weight, of_bias, factor]
    return total, torch.cat(log_sums) if log_sums else None, kept


def _chunks_backward(
    _: Rows, __: Plan, layer: Layer, incoming: Tensor, kept: list[Tensor], wanted: Wanted
) -> list[Tensor | None]:
    *gradients, factor = kept
    by = incoming * factor
    return [
        (gradient * by).to(layer.hidden.dtype) if wants else None
        for gradient, wants in zip(gradients, wanted, strict=True)
    ]


def _slices_forward(rows: Rows, plan: Plan, layer: Layer, wanted: Wanted) -> Results:
    numbers, kept_logits = [], []
    for k, classes in enumerate(products.parts(len(layer.weight), plan.part)):
        logits = layer.of_classes(classes).logits()
        if any(wanted) and k < plan.kept:
            kept_logits.append(logits)
        numbers.append(Part(rows, logits, rows.first + classes.start).numbers())
        del logits
    losses, log_sums, found = finished(rows, numbers, plan.part, len(layer.weight))
    return losses, log_sums, [*found, *kept_logits]


def _slices_backward(
    rows: Rows, plan: Plan, layer: Layer, incoming: Tensor, kept: list[Tensor], wanted: Wanted
) -> list[Tensor | None]:
    hidden, weight, _ = layer
    fields = len(Found._fields)
    found, kept_logits = Found(*kept[:fields]), kept[fields:]
    incoming, powers = scaled(rows, incoming, found, hidden.dtype)
    of_hidden = None
    power = incoming.new_ones(())
    times_powers = hidden
    if powers is not None and wanted[1]:
        times_powers = torch.empty_like(hidden)  # it makes way for the gradient
        power = products.times_rows(hidden, powers, out=times_powers)
    of_weight = torch.empty_like(weight) if wanted[1] else None
    of_bias = torch.empty_like(weight[:, 0]) if wanted[2] else None
    for k, classes in enumerate(products.parts(len(weight), plan.part)):
        logits = kept_logits[k] if k < len(kept_logits) else layer.of_classes(classes).logits()
        gradient = Part(rows, logits, rows.first + classes.start).gradient(found, incoming)
        del logits
        if wanted[0]:
            of_hidden = products.add(of_hidden, gradient, weight[classes])
        if of_weight is not None:
            products.weight_gradient(gradient, times_powers, power, of_weight[classes])
        if of_bias is not None:
            of_bias[classes] = (
                gradient.sum(0, dtype=found.numbers.dtype)
                if powers is None
                else products.row_sums(gradient, powers)
            )
        del gradient
    del times_powers
    if of_hidden is not None:
        if rows.shard and rows.shard.summed:
            of_hidden = rows.shard.summed(of_hidden)
        of_hidden = of_hidden if powers is None else of_hidden.mul_(powers.unsqueeze(1))
        of_hidden = of_hidden.to(hidden.dtype)
    return [of_hidden, of_weight, of_bias]


PLANS: dict[str, tuple[Any, Any]] = {
    WHOLE: (_whole_forward, _whole_backward),
    CHUNKS: (_chunks_forward, _chunks_backward),
    SLICES: (_slices_forward, _slices_backward),
}


class Losses(torch.autograd.Function):
    """The losses of rows; second derivatives use PyTorch's operators."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, rows: Rows, plan: Plan
    ) -> tuple[Tensor, Tensor | None]:
        """Return the losses and any log-sum-exps."""
        wanted = ctx.needs_input_grad[:3]
        with torch.autocast(hidden.device.type, enabled=False):
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
        with torch.autocast(hidden.device.type, enabled=False):
            if not torch.is_grad_enabled():
                _, computed = PLANS[ctx.plan.kind]
                return (*computed(rows, ctx.plan, layer, incoming, kept, wanted), None, None)
            if rows.shard:
                refuse_second_derivatives(rows.shard.name)
            # Views, so that relations between operands do not enter the gradient.
            views: list[Any] = [None if x is None else x.view_as(x) for x in layer]
            losses, _ = composed(rows, Layer(*views))
            leaves = [view for view, wants in zip(views, wanted, strict=True) if wants]
            incoming = incoming.to(losses.dtype)
            found = iter(torch.autograd.grad(losses, leaves, incoming, create_graph=True))
        return (*(next(found) if wants else None for wants in wanted), None, None)


def by_formula(rows: Rows, layer: Layer, budget: int | None) -> tuple[Tensor, Tensor | None]:
    """Return losses and log-sum-exps by PyTorch's formula, some rows at a time."""
    classes, item = len(layer.weight), max(layer.hidden.element_size(), 4)
    # The formula and its backward hold eight tensors of the logits' size at once; they take 256 MiB
    # without a budget.
    most = max((2**28 if budget is None else budget) // (classes * item * 8), 1)
    found = []
    with torch.autocast(layer.hidden.device.type, enabled=False):
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
