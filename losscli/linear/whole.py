"""The plan with all logits at once, in which forward overwrites them with their gradient."""

from __future__ import annotations

import torch
from torch import Tensor

from losscli.losses.linear.plan import ROWS, Plan

from . import products
from .kernels import log_sums_of, losses_in_place
from .products import Layer
from .rows import Rows


def forward(
    rows: Rows, _: Plan, layer: Layer, __: tuple[bool, ...]
) -> tuple[Tensor, Tensor | None, list[Tensor]]:
    """Return the losses, the log-sum-exps, and the gradient of the logits.

    The gradient is that of each row's loss or of the mean. In float16, class weights multiply rows
    instead, because small ones would cost digits.
    """
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


def backward(
    rows: Rows,
    __: Plan,
    layer: Layer,
    incoming: Tensor,
    kept: list[Tensor],
    wanted: tuple[bool, ...],
) -> list[Tensor | None]:
    """Return the gradients of hidden states, weight and bias: two products."""
    hidden, weight, _ = layer
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
