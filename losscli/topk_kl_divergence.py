"""Divergence from the k most likely classes of a teacher, with one bin for all others.

The logits of a student become ``k + 1`` bins: those of the k classes, and the logarithm of the sum
of exponentials of all others, which is added up from these others alone. A difference of 1 and the
k probabilities would keep no digit of a small rest. What is left is a divergence of short rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from losscli.linear.kernels import Bent, log_sums_of
from losscli.losses import ROW_LOSSES
from losscli.losses.calling import Calls
from losscli.losses.formulas import widened
from losscli.operators import registration as registration  # defines torch.ops.losscli

_CHUNK = 32 * 2**20
"""Bytes of logits that are copied at a time: what the L2 cache of an H100 holds beside others."""


def topk_kl_divergence(
    input: Tensor,
    classes: Tensor,
    target: Tensor,
    *,
    reverse: bool = False,
    temperature: float = 1.0,
    mask: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Kullback-Leibler divergence over k classes of a teacher, and one bin for all others.

    With p the softmax of ``input / T`` and q the teacher's distribution, of which ``target`` has
    the logarithms for k classes, a row's loss is the sum of ``q * log(q / p)`` over these classes
    and the bin, whose q and p are 1 less those of the classes; with ``reverse`` that of
    ``p * log(p / q)``. It is the divergence of all classes after the others have become one, and so
    never more than that. 0 times infinity is 0.

    The divergences of sequence distillation (Hinton et al. 2015, arXiv:1503.02531; the reverse one,
    Gu et al. 2023, arXiv:2306.08543) from what a server returns of a teacher.

    Args:
        input: the student's logits, ``(..., C)`` for C classes; differentiable.
        classes: the numbers of k classes of each row in int64, int32 or uint8, ``(..., k)``; all
            different, in any order.
        target: the teacher's log-probabilities of these, ``(..., k)``; differentiable. Where they
            sum up to more than 1 they are divided by their sum.
        reverse: whether the student's distribution weighs the logarithms.
        temperature: divides the student's logits; above 0. The teacher's log-probabilities are of
            the teacher's own.
        mask: bool, ``(...)``: the rows that count; None for all. The loss and the gradients of the
            others are 0, whatever they hold.
        reduction: ``none`` (one loss for each row), ``mean`` (over the rows that count) or ``sum``
            (shape ``()``).

    Returns:
        The loss in the promoted dtype, of 16 bits in float32.

    Raises:
        ValueError: for an unknown reduction, a temperature that is not above 0, or shapes that do
            not fit.
        TypeError: for class numbers of another dtype, or logits that are no floating tensor.
        IndexError: on the CPU, where a class is out of range.
    """
    name = "topk_kl_divergence"
    divergence = ROW_LOSSES["reverse_kl_divergence" if reverse else "kl_divergence"]
    calls = Calls(name)
    calls.parameters = divergence.parameters
    calls.check({"reduction": reduction, "temperature": temperature})
    _check(input, classes, target, mask)
    classes = classes.long()
    if mask is not None:
        harmless = torch.arange(classes.shape[-1], device=classes.device)
        classes = torch.where(mask.unsqueeze(-1), classes, harmless)
        target = torch.where(mask.unsqueeze(-1), target, torch.zeros_like(target))
    if _is_eager(input, classes, target):
        rows = input.reshape(-1, input.shape[-1])
        counted = None if mask is None else mask.reshape(-1)
        bins = _Bins.apply(  # type: ignore[no-untyped-call]
            rows, classes.reshape(len(rows), -1), counted, temperature
        )
        bins = bins.view(*input.shape[:-1], -1)
    else:
        bins = _composed(input, classes, mask, temperature)
    target = _with_rest(target)
    if classes.shape[-1] == input.shape[-1]:
        # There are no others, but for what roundings leave of the teacher's 1.
        bins, target = bins[..., :-1], target[..., :-1]
    loss: Tensor = divergence.loss(bins, target, mask=mask, reduction=reduction)
    return loss


def _check(input: Tensor, classes: Tensor, target: Tensor, mask: Tensor | None) -> None:
    """Raise an error for operands that do not fit."""
    name = "topk_kl_divergence"
    if not input.is_floating_point():
        raise TypeError(
            f"{name}: input must be float32, float64, float16 or bfloat16, but is {input.dtype}"
        )
    if classes.dtype not in (torch.int64, torch.int32, torch.uint8):
        raise TypeError(
            f"{name}: classes must hold class numbers in int64, int32 or uint8, but is "
            f"{classes.dtype}"
        )
    fits = input.dim() > 0 and classes.dim() > 0 and classes.shape[:-1] == input.shape[:-1]
    if not fits or not 0 < classes.shape[-1] <= input.shape[-1]:
        raise ValueError(
            f"{name}: classes must be (..., k) for input (..., C), with k from 1 to C, but input "
            f"is {list(input.shape)} and classes {list(classes.shape)}"
        )
    if target.shape != classes.shape:
        raise ValueError(
            f"{name}: target must have the shape of classes {list(classes.shape)}, but is "
            f"{list(target.shape)}"
        )
    if mask is not None and (mask.dtype != torch.bool or mask.shape != input.shape[:-1]):
        raise ValueError(
            f"{name}: mask must be bool and have the shape of the rows {list(input.shape[:-1])}, "
            f"but is {mask.dtype} of {list(mask.shape)}"
        )


def _is_eager(*tensors: Tensor) -> bool:
    """Tell whether tensors have memory and nothing transforms or traces their operators."""
    if torch.compiler.is_compiling() or torch._C._functorch.peek_interpreter_stack() is not None:
        return False
    plain = (Tensor, torch.nn.Parameter)
    return all(type(each) in plain and not each.is_meta for each in tensors)


def _with_rest(log_probs: Tensor) -> Tensor:
    """Return log-probabilities with that of the rest, in float64 for the digits of a small one."""
    wide = log_probs.double()
    rest = 1 - wide.exp().sum(-1, keepdim=True)
    # Harmless where there is no rest, for its gradient is computed there as well.
    positive = rest > 0
    log_rest = torch.where(positive, rest, 1.0).log().masked_fill(~positive, -torch.inf)
    return torch.cat([wide, log_rest], -1).to(widened(log_probs.dtype))


def _composed(logits: Tensor, classes: Tensor, mask: Tensor | None, temperature: float) -> Tensor:
    """Return the bins by operators that can be traced, transformed and differentiated again."""
    scaled = logits.to(widened(logits.dtype)) / temperature
    if mask is not None:
        scaled = torch.where(mask.unsqueeze(-1), scaled, torch.zeros_like(scaled))
    others = scaled.scatter(-1, classes, -torch.inf)
    return torch.cat([scaled.gather(-1, classes), others.logsumexp(-1, keepdim=True)], -1)


class _Bins(torch.autograd.Function):
    """The bins of rows; second derivatives are those of PyTorch's operators."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, classes: Tensor, mask: Tensor | None, temperature: float
    ) -> Tensor:
        ctx.temperature = temperature
        own = logits.gather(1, classes).to(widened(logits.dtype)) / temperature
        if mask is not None:
            own = torch.where(mask.unsqueeze(1), own, 0.0)
        found = own.new_empty(len(own), own.shape[1] + 1)
        found[:, :-1] = own
        nothing = torch.full_like(classes, -torch.inf, dtype=logits.dtype)
        for rows, others in _others(logits, classes, nothing, mask):
            found[rows, -1] = log_sums_of(Bent(others, temperature, None))
        ctx.save_for_backward(logits, classes, mask, found[:, -1] == -torch.inf)
        return found

    @staticmethod
    def backward(ctx: Any, incoming: Tensor) -> tuple[Tensor | None, ...]:
        logits, classes, mask, is_empty = ctx.saved_tensors
        if torch.is_grad_enabled():
            bins = _composed(logits, classes, mask, ctx.temperature)
            (found,) = torch.autograd.grad(bins, logits, incoming, create_graph=True)
            return found, None, None, None
        of_classes = (incoming[:, :-1] / ctx.temperature).to(logits.dtype)
        # Where no other class is possible, their probabilities are those of one that is.
        others_than = torch.full_like(of_classes, -torch.inf)
        others_than[:, 0].masked_fill_(is_empty, 0.0)
        gradient = None
        for rows, others in _others(logits, classes, others_than, mask):
            # The kernel has -1 times the probabilities of all but one class, which is written over.
            part = torch.ops.losscli.token_log_probs_backward(
                *(-incoming[rows, -1], others, classes[rows, 0], "none", ctx.temperature, 0.0),
                [True],
            )
            part.scatter_(1, classes[rows], of_classes[rows])
            if len(part) == len(logits):
                return part, None, None, None
            gradient = torch.empty_like(logits) if gradient is None else gradient
            gradient[rows] = part
        return torch.zeros_like(logits) if gradient is None else gradient, None, None, None


def _others(
    logits: Tensor, classes: Tensor, instead: Tensor, mask: Tensor | None
) -> Iterator[tuple[slice, Tensor]]:
    """Yield rows, so many that a cache holds them, and their logits but those of the classes.

    Args:
        logits: ``(N, C)``.
        classes: ``(N, k)``.
        instead: what the copy has in place of their logits, ``(N, k)``.
        mask: the rows that count, ``(N)``; the others are 0.
    """
    size = max(_CHUNK // max(logits.shape[1] * logits.element_size(), 1), 1)
    for first in range(0, len(logits), size):
        rows = slice(first, first + size)
        others = logits[rows].scatter(1, classes[rows], instead[rows])
        if mask is not None:
            others.masked_fill_(~mask[rows].unsqueeze(1), 0.0)
        yield rows, others
