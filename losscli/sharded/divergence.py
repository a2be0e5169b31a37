"""Divergences of two sets of logits whose classes are sharded alike.

With a rank's shares P and Q of p and q, and D the divergence within its classes, its part is ``Q *
(D + log(Q / P))`` (Cover and Thomas, Elements of Information Theory, theorem 2.5.3).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from losscli.linear.calls import check_settings
from losscli.linear.kernels import Settings
from losscli.linear.operands import check_floating, check_mask, check_shape, loss_dtype
from losscli.linear.parts import operators, refuse_second_derivatives
from losscli.losses.formulas import widened
from losscli.losses.making import public
from losscli.losses.rows.logit_pairs import ARGUMENTS, KL_DIVERGENCE

from .collective import Ranks
from .functions import OF_SHARDS, check_plain

_OF_PAIRS = {
    **OF_SHARDS,
    "input": "this rank's logits, ``(..., C_r)``; differentiable once.",
    "target": "logits of the same shape and classes; differentiable once.",
    "temperature": ARGUMENTS["temperature"],
    "reduction": ARGUMENTS["reduction"],
}


@public(_OF_PAIRS)
def kl_divergence(
    input: Tensor,
    target: Tensor,
    *,
    group: Any = None,
    sizes: Sequence[int] | None = None,
    temperature: float = 1.0,
    mask: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Kullback-Leibler divergence of logits whose classes are sharded over ranks.

    As :func:`losscli.functional.kl_divergence` of all logits. One all-gather of 20 bytes per row
    and rank in float32.

    Returns:
        The loss in the promoted dtype, bitwise equal on all ranks.
    """
    return _divergence("kl_divergence", input, target, group, sizes, temperature, mask, reduction)


@public(_OF_PAIRS)
def reverse_kl_divergence(
    input: Tensor,
    target: Tensor,
    *,
    group: Any = None,
    sizes: Sequence[int] | None = None,
    temperature: float = 1.0,
    mask: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """:func:`kl_divergence` with the two sets of logits exchanged."""
    name = "reverse_kl_divergence"
    return _divergence(name, input, target, group, sizes, temperature, mask, reduction)


def _divergence(
    name: str,
    input: Tensor,
    target: Tensor,
    group: Any,
    sizes: Sequence[int] | None,
    temperature: float,
    mask: Tensor | None,
    reduction: str,
) -> Tensor:
    check_settings(name, Settings(temperature=temperature), reduction)
    for said, logits in (("input", input), ("target", target)):
        check_floating(name, said, logits)
    check_plain(name, input, target, mask)
    check_shape(name, "target", target, input.shape, "the shape of input")
    if input.dim() == 0:
        raise ValueError(f"{name}: input must be (..., C_r), but is a number")
    shape, width = input.shape[:-1], input.shape[-1]
    check_mask(name, mask, shape, "the rows")
    alike = (input.dtype, target.dtype, float(temperature), reduction, mask is None)
    ranks = Ranks.of(name, group, width, sizes, input.device, alike)
    of_rows = None if mask is None else mask.reshape(-1)
    rows = shape.numel()
    pair = [logits.reshape(rows, width) for logits in (input, target)]
    if name == "reverse_kl_divergence":
        pair.reverse()
    losses: Tensor = _Divergence.apply(  # type: ignore[no-untyped-call]
        *pair, of_rows, temperature, ranks
    )
    dtype = loss_dtype(input, target)
    if reduction == "none":
        return losses.view(shape).to(dtype)
    total = losses.sum(dtype=torch.float64)
    if reduction == "mean":
        total = total / (rows if of_rows is None else of_rows.sum())
    return total.to(dtype)


class _Divergence(torch.autograd.Function):
    """The divergence of q from p in each row; only first derivatives."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, y: Tensor, mask: Tensor | None, temperature: float, ranks: Ranks
    ) -> Tensor:
        found = ranks.gather(_numbers(x, y, mask, temperature))
        if mask is not None:
            mask = mask.contiguous()
        whole: Tensor = operators(x).join_divergences(
            found.numbers, found.widths, mask, ranks.classes, ranks.rank, ranks.first, temperature
        )
        if any(ctx.needs_input_grad):
            ctx.save_for_backward(x, y, mask, whole)
        ctx.name, ctx.temperature = ranks.name, temperature
        return whole[0]

    @staticmethod
    def backward(ctx: Any, incoming: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives(ctx.name)
        x, y, mask, whole = ctx.saved_tensors
        wanted = ctx.needs_input_grad[:2]
        dtype = torch.promote_types(x.dtype, y.dtype)
        found = operators(x).divergence_gradients(
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
