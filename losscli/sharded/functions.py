"""Losses of logits whose classes are sharded over ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from losscli.linear import operands
from losscli.linear.calls import check_class_weight, check_settings, settings_of
from losscli.linear.kernels import Settings
from losscli.linear.parts import Found, Part, Shard, finished, refuse_second_derivatives
from losscli.linear.rows import Rows
from losscli.losses.formulas import widened
from losscli.losses.making import OF_CLASSES, OF_ROWS, public
from losscli.losses.shapes import class_remedy

from .collective import Ranks

OF_SHARDS = {
    **OF_ROWS,
    "logits": "this rank's logits, ``(..., C_r)``; differentiable once.",
    "tokens": "token indices over all ranks, ``(...)``; the same on all ranks.",
    "weight": "a factor for each of this rank's classes, ``(C_r)``, without a gradient; on all "
    "ranks or none.",
    "mask": "bool, ``(...)``: the rows that count; None for all; the same on all ranks. The loss "
    "and the gradients of the others are 0.",
    "group": "the process group that shares the classes, or a one-dimensional mesh; None for all "
    "processes.",
    "sizes": "each rank's number of classes. None: the first call with this group and C_r asks the "
    "other ranks, for which the host waits; later calls reuse the answer. If another rank's number "
    "has changed but not this one's, the CPU raises ValueError and a GPU returns NaN.",
    "RuntimeError": "there is no process group.",
    "ValueError": "this process is not in the group, ``sizes`` or another shape does not fit, no "
    "rank has a class, a setting is invalid, or ranks differ in rows, settings, dtypes or optional "
    "operands. On a GPU the loss of such ranks is NaN.",
    "TypeError": "an operand has a wrong dtype, or ``group`` or ``sizes`` a wrong type.",
}


@public(OF_SHARDS | OF_CLASSES)
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    group: Any = None,
    sizes: Sequence[int] | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    temperature: float = 1.0,
    softcap: float = 0.0,
    z_loss: float = 0.0,
) -> Tensor:
    """Cross entropy of logits whose classes are sharded over a group's ranks.

    As :func:`losscli.functional.cross_entropy` of all logits; each rank has some classes, in rank
    order. Forward makes one all-gather of 12 bytes per row and rank in float32. Backward
    communicates nothing and expects the same grad_output on all ranks.

    Args:
        input: this rank's logits, ``(C_r)``, ``(N, C_r)`` or ``(N, C_r, d1, ...)`` for its C_r
            classes, possibly none; differentiable once.
        target: class indices over all ranks in int64, int32 or uint8, in the shape of ``input``
            without C_r; the same on all ranks.

    Returns:
        The loss, in the dtype of ``input``, under autocast in float32; bitwise equal on all ranks.
    """
    name = "cross_entropy"
    settings = settings_of(ignore_index, label_smoothing, temperature, softcap, z_loss)
    check_settings(name, settings, reduction)
    operands.check_floating(name, "input", input)
    operands.check_numbers(name, "target", target, "; probabilities of classes cannot be sharded")
    check_plain(name, input, target, weight)
    if input.dim() == 0:
        raise ValueError(f"{name}: input must be (C_r), (N, C_r) or (N, C_r, ...), but is a number")
    rows = input.movedim(1, -1) if input.dim() > 1 else input
    way = class_remedy("input", input.shape, "target", target.shape, min(input.dim() - 1, 1))
    of = "the shape of input without its classes"
    operands.check_shape(name, "target", target, rows.shape[:-1], of, way)
    of = "a number for each class of this rank"
    operands.check_shape(name, "weight", weight, rows.shape[-1:], of)
    check_class_weight(name, weight)
    if weight is not None and weight.dtype != input.dtype:
        raise TypeError(
            f"{name}: weight must have the dtype of input {input.dtype}, but is {weight.dtype}"
        )
    found = _losses(name, rows, target, weight, settings, reduction, group, sizes)
    found = found.view(target.shape) if reduction == "none" else found
    return found.to(operands.loss_dtype(input))


@public(OF_SHARDS | OF_CLASSES)
def token_log_probs(
    logits: Tensor,
    tokens: Tensor,
    *,
    group: Any = None,
    sizes: Sequence[int] | None = None,
    temperature: float = 1.0,
    entropy: bool = False,
) -> Any:
    """Log-probability of each row's token, from logits whose classes are sharded over ranks.

    As :func:`losscli.functional.token_log_probs` of all logits. One all-gather of 12 bytes per row
    and rank in float32, 16 with the entropy.

    Returns:
        The log-probabilities, ``(...)``, or with ``entropy`` these and the entropies; float32 for
        16-bit logits.
    """
    name = "token_log_probs"
    settings = Settings(temperature=temperature, entropy=entropy)
    check_settings(name, settings)
    operands.check_floating(name, "logits", logits)
    operands.check_numbers(name, "tokens", tokens)
    check_plain(name, logits, tokens)
    if logits.dim() == 0:
        raise ValueError(f"{name}: logits must be (..., C_r), but are a number")
    of = "the shape of logits without their classes"
    way = class_remedy("logits", logits.shape, "tokens", tokens.shape, logits.dim() - 1)
    operands.check_shape(name, "tokens", tokens, logits.shape[:-1], of, way)
    found = _losses(name, logits, tokens, None, settings, "none", group, sizes)
    if not entropy:
        return -found.view(tokens.shape)
    log_probs, entropies = found.view(2, *tokens.shape).unbind(0)
    return log_probs, entropies


def _losses(
    name: str,
    logits: Tensor,
    numbers: Tensor,
    weight: Tensor | None,
    settings: Settings,
    reduction: str,
    group: Any,
    sizes: Sequence[int] | None,
) -> Tensor:
    """Return the losses of logits ``(..., C_r)``, ``(N)``, in at least float32."""
    width = logits.shape[-1]
    alike = (logits.dtype, *settings, reduction, weight is None)
    ranks = Ranks.of(name, group, width, sizes, logits.device, alike)
    target = numbers.reshape(-1).long()
    may_ignore = name != "token_log_probs"
    if not target.is_cuda:
        counted = target != settings.ignore_index if may_ignore else True
        operands.check_classes(name, target, ranks.classes, counted)
    rows = Rows(target, ranks.classes, weight, settings, reduction, may_ignore, False, ranks.first)
    found: Tensor = _Losses.apply(  # type: ignore[no-untyped-call]
        logits.reshape(target.numel(), width), rows, ranks.shard()
    )
    return found.to(widened(logits.dtype))


class _Losses(torch.autograd.Function):
    """The losses of rows; only first derivatives."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, rows: Rows, shard: Shard) -> Tensor:
        width = logits.shape[1]
        numbers = Part(rows, logits, rows.first).numbers()
        losses, _, found = finished(rows, [numbers], width, width, shard)
        ctx.name = shard.name
        ctx.rows = replace(rows, target=rows.target[:0], class_weight=None)
        if ctx.needs_input_grad[0]:
            ctx.save_for_backward(logits, rows.target, rows.class_weight, *found)
        return losses

    @staticmethod
    def backward(ctx: Any, incoming: Tensor) -> tuple[Tensor, None, None]:
        refuse_second_derivatives(ctx.name)
        logits, target, class_weight, *found = ctx.saved_tensors
        rows = replace(ctx.rows, target=target, class_weight=class_weight)
        return Part(rows, logits, rows.first).gradient(Found(*found), incoming), None, None


def check_plain(name: str, *tensors: Tensor | None) -> None:
    """Raise NotImplementedError for tensors that are not plain."""
    if not operands.is_eager(*tensors):
        raise NotImplementedError(
            f"{name}: losses over ranks take plain tensors, and no compiler or transform traces "
            "them; within torch.compile call them in a function that torch.compiler.disable wraps, "
            "and for DTensors those of losscli.functional"
        )
