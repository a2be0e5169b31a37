"""Losses of sharded logits, and their gradients."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from losscli.linear.parts import Found, Part, Shard, finished, refuse_second_derivatives
from losscli.linear.rows import Rows


class Losses(torch.autograd.Function):
    """The losses of rows; only first derivatives."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, rows: Rows, shard: Shard) -> Tensor:
        """Return the losses, with one read of the logits and one collective."""
        width = logits.shape[1]
        numbers = _part(rows, logits).numbers()
        losses, _, found = finished(rows, [numbers], width, width, shard)
        ctx.name = shard.name
        ctx.rows = replace(rows, target=rows.target[:0], class_weight=None)
        if ctx.needs_input_grad[0]:
            ctx.save_for_backward(logits, rows.target, rows.class_weight, *found)
        return losses

    @staticmethod
    def backward(ctx: Any, incoming: Tensor) -> tuple[Tensor, None, None]:
        """Return the gradient of this rank's logits, without communication."""
        refuse_second_derivatives(ctx.name)
        logits, target, class_weight, *found = ctx.saved_tensors
        rows = replace(ctx.rows, target=target, class_weight=class_weight)
        return _part(rows, logits).gradient(Found(*found), incoming), None, None


def _part(rows: Rows, logits: Tensor) -> Part:
    return Part(rows, logits, slice(rows.first, rows.first + logits.shape[1]))
