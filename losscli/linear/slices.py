"""The plan of slices of classes, in which backward recomputes logits that were not kept."""

from __future__ import annotations

import torch
from torch import Tensor

from losscli.losses.linear.plan import Plan

from . import products
from .parts import Found, Part, Shard, finished, scaled
from .products import Layer
from .rows import Rows


def forward(
    rows: Rows,
    plan: Plan,
    layer: Layer,
    wanted: tuple[bool, ...],
    shard: Shard | None = None,
) -> tuple[Tensor, Tensor | None, list[Tensor | None]]:
    """Return the losses, the log-sum-exps, and what backward needs."""
    numbers, kept_logits = [], []
    for k, classes in enumerate(products.parts(len(layer.weight), plan.part)):
        logits = layer.of_classes(classes).logits()
        if any(wanted) and k < plan.kept:
            kept_logits.append(logits)
        numbers.append(Part(rows, logits, _among_all(rows, classes)).numbers())
        del logits
    losses, log_sums, found = finished(rows, numbers, plan.part, len(layer.weight), shard)
    return losses, log_sums, [*found, *kept_logits]


def backward(
    rows: Rows,
    plan: Plan,
    layer: Layer,
    incoming: Tensor,
    kept: list[Tensor],
    wanted: tuple[bool, ...],
    shard: Shard | None = None,
) -> list[Tensor | None]:
    """Return the gradients of hidden states, weight and bias."""
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
        gradient = Part(rows, logits, _among_all(rows, classes)).gradient(found, incoming)
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
        of_hidden = of_hidden if shard is None else shard.summed(of_hidden)
        of_hidden = of_hidden if powers is None else of_hidden.mul_(powers.unsqueeze(1))
        of_hidden = of_hidden.to(hidden.dtype)
    return [of_hidden, of_weight, of_bias]


def _among_all(rows: Rows, classes: slice) -> slice:
    return slice(rows.first + classes.start, rows.first + classes.stop)
