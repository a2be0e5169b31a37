"""Losses of logits whose classes are sharded over ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from losscli.linear import operands, parts
from losscli.linear.calls import check_class_weight, check_settings, settings_of
from losscli.linear.kernels import Settings
from losscli.linear.parts import Rows
from losscli.losses.formulas import widened
from losscli.losses.making import OF_CLASSES, OF_ROWS, public
from losscli.losses.rows.logit_pairs import ARGUMENTS, KL_DIVERGENCE
from losscli.losses.shapes import class_remedy

from .collective import Ranks, ranks_of

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
    return found.view(2, *tokens.shape).unbind(0) if entropy else -found.view(tokens.shape)


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
    ranks = ranks_of(name, group, width, sizes, logits, *settings, reduction, weight is None)
    target = numbers.reshape(-1).long()
    may_ignore = name != "token_log_probs"
    if not target.is_cuda:
        counted = target != settings.ignore_index if may_ignore else True
        operands.check_classes(name, target, ranks.classes, counted)
    shard = ranks.shard()
    rows = Rows(target, ranks.classes, weight, settings, reduction, may_ignore, False, shard)
    of_rows = logits.reshape(target.numel(), width)
    found: Tensor = _Losses.apply(of_rows, rows)  # type: ignore[no-untyped-call]
    return found.to(widened(logits.dtype))


class _Losses(torch.autograd.Function):
    """The losses of rows; only first derivatives."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, rows: Rows) -> Tensor:
        width = logits.shape[1]
        numbers = parts.Part(rows, logits, rows.first).numbers()
        losses, _, found = parts.finished(rows, [numbers], width, width)
        ctx.rows = replace(rows, target=rows.target[:0], class_weight=None)
        if ctx.needs_input_grad[0]:
            ctx.save_for_backward(logits, rows.target, rows.class_weight, *found)
        return losses

    @staticmethod
    def backward(ctx: Any, incoming: Tensor) -> tuple[Tensor, None]:
        parts.refuse_second_derivatives(ctx.rows.shard.name)
        logits, target, class_weight, *found = ctx.saved_tensors
        rows = replace(ctx.rows, target=target, class_weight=class_weight)
        return parts.Part(rows, logits, rows.first).gradient(parts.Found(*found), incoming), None


def check_plain(name: str, *tensors: Tensor | None) -> None:
    """Raise NotImplementedError for tensors that are not plain."""
    if not operands.is_eager(*tensors):
        raise NotImplementedError(
            f"{name}: losses over ranks take plain tensors, and no compiler or transform traces "
            "them; within torch.compile call them in a function that torch.compiler.disable wraps, "
            "and for DTensors those of losscli.functional"
        )


_OF_PAIRS = {
    **OF_SHARDS,
    "input": "this rank's logits, ``(..., C_r)``; differentiable once.",
    "target": "logits of the same shape and classes; differentiable once.",
    "temperature": ARGUMENTS["temperature"],
    "reduction": ARGUMENTS["reduction"],
}


def _divergence_of(name: str, docstring: str) -> Callable[..., Tensor]:
    def divergence(
        input: Tensor,
        target: Tensor,
        *,
        group: Any = None,
        sizes: Sequence[int] | None = None,
        temperature: float = 1.0,
        mask: Tensor | None = None,
        reduction: str = "mean",
    ) -> Tensor:
        check_settings(name, Settings(temperature=temperature), reduction)
        for said, logits in (("input", input), ("target", target)):
            operands.check_floating(name, said, logits)
        check_plain(name, input, target, mask)
        operands.check_shape(name, "target", target, input.shape, "the shape of input")
        if input.dim() == 0:
            raise ValueError(f"{name}: input must be (..., C_r), but is a number")
        shape, width = input.shape[:-1], input.shape[-1]
        operands.check_mask(name, mask, shape, "the rows")
        alike = (target.dtype, float(temperature), reduction, mask is None)
        ranks = ranks_of(name, group, width, sizes, input, *alike)
        of_rows = None if mask is None else mask.reshape(-1)
        rows = shape.numel()
        pair = [logits.reshape(rows, width) for logits in (input, target)]
        if name == "reverse_kl_divergence":
            pair.reverse()
        losses: Tensor = _Divergence.apply(  # type: ignore[no-untyped-call]
            *pair, of_rows, temperature, ranks
        )
        dtype = operands.loss_dtype(input, target)
        if reduction == "none":
            return losses.view(shape).to(dtype)
        total = losses.sum(dtype=torch.float64)
        if reduction == "mean":
            total = total / (rows if of_rows is None else of_rows.sum())
        return total.to(dtype)

    divergence.__name__ = divergence.__qualname__ = name
    divergence.__doc__ = docstring
    return public(_OF_PAIRS)(divergence)


kl_divergence = _divergence_of(
    "kl_divergence",
    """Kullback-Leibler divergence of logits whose classes are sharded over ranks.

    As :func:`losscli.functional.kl_divergence` of all logits. One all-gather of 20 bytes per row
    and rank in float32.

    Returns:
        The loss in the promoted dtype, bitwise equal on all ranks.
    """,
)
reverse_kl_divergence = _divergence_of(
    "reverse_kl_divergence", ":func:`kl_divergence` with the two sets of logits exchanged."
)


class _Divergence(torch.autograd.Function):
    """The divergence of q from p in each row; only first derivatives.

    With a rank's shares P and Q of p and q, and D the divergence within its classes, its part is
    ``Q * (D + log(Q / P))`` (Cover and Thomas, Elements of Information Theory, theorem 2.5.3).
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, y: Tensor, mask: Tensor | None, temperature: float, ranks: Ranks
    ) -> Tensor:
        numbers, _, widths = ranks.gather(_numbers(x, y, mask, temperature))
        if mask is not None:
            mask = mask.contiguous()
        whole: Tensor = parts.operators(x).join_divergences(
            numbers, widths, mask, ranks.classes, ranks.rank, ranks.first, temperature
        )
        if any(ctx.needs_input_grad):
            ctx.save_for_backward(x, y, mask, whole)
        ctx.name, ctx.temperature = ranks.name, temperature
        return whole[0]

    @staticmethod
    def backward(ctx: Any, incoming: Tensor) -> tuple[Tensor | None, ...]:
        parts.refuse_second_derivatives(ctx.name)
        x, y, mask, whole = ctx.saved_tensors
        wanted = ctx.needs_input_grad[:2]
        dtype = torch.promote_types(x.dtype, y.dtype)
        found = parts.operators(x).divergence_gradients(
            incoming, x.to(dtype), y.to(dtype), mask, whole, ctx.temperature, wanted
        )
        of_pair = (
            gradient.to(logits.dtype) if wants else None
            for gradient, logits, wants in zip(found, (x, y), wanted, strict=True)
        )
        return (*of_pair, None, None, None)


def _numbers(x: Tensor, y: Tensor, mask: Tensor | None, temperature: float) -> Tensor:
    """Return a part's numbers, ``(5, N)``; see csrc/parts/kernels.h."""
    if x.numel() > 0:
        found: Tensor = torch.ops.losscli.kl_divergence_of_part(x, y, mask, "none", temperature)
        return found
    dtype = widened(torch.promote_types(x.dtype, y.dtype))
    nothing = x.new_zeros((KL_DIVERGENCE.part_values, len(x)), dtype=dtype)
    nothing[1::2], nothing[2::2] = torch.finfo(dtype).min, -torch.inf
    return nothing
