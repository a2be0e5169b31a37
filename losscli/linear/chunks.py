"""The plan of chunks of rows, in which forward computes the gradients of a reduced loss."""

from __future__ import annotations

import torch
from torch import Tensor

from losscli.losses.formulas import widened
from losscli.losses.linear.plan import Plan

from . import products
from .kernels import log_sums_of, losses_in_place
from .products import Layer
from .rows import Rows


def forward(
    rows: Rows, plan: Plan, layer: Layer, wanted: tuple[bool, ...]
) -> tuple[Tensor, Tensor | None, list[Tensor]]:
    """Return the losses, the log-sum-exps, and gradients accumulated in float32."""
    hidden, weight, _ = layer
    of_weight = of_bias = None
    losses, log_sums, of_hidden = [], [], []
    for part in products.parts(len(hidden), plan.part):
        logits, target = layer.of_rows(part).logits(), rows.target[part]
        if rows.with_log_sums:
            log_sums.append(log_sums_of(logits, rows.settings))
        losses.append(losses_in_place(logits, target, rows.class_weight, rows.settings))
        if wanted[0]:
            of_hidden.append(products.wide(logits, weight))
        if wanted[1]:
            of_weight = products.add(of_weight, logits.t(), hidden[part])
        if wanted[2]:
            sums = logits.sum(0, dtype=widened(logits.dtype))
            of_bias = sums if of_bias is None else of_bias.add_(sums)
        del logits
    total, factor = rows.reduced(torch.cat(losses))
    nothing = hidden.new_empty(0)
    kept = [
        torch.cat(of_hidden) if of_hidden else nothing,
        nothing if of_weight is None else of_weight,
        nothing if of_bias is None else of_bias,
        factor,
    ]
    return total, torch.cat(log_sums) if log_sums else None, kept


def backward(
    _: Rows,
    __: Plan,
    layer: Layer,
    incoming: Tensor,
    kept: list[Tensor],
    wanted: tuple[bool, ...],
) -> list[Tensor | None]:
    """Return forward's gradients times grad_output."""
    *gradients, factor = kept
    by = incoming * factor
    return [
        (gradient * by).to(layer.hidden.dtype) if wants else None
        for gradient, wants in zip(gradients, wanted, strict=True)
    ]
