"""Composes the divergence of ``losscli/losses/rows/topk_kl_divergence.py`` from row kernels."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from losscli.linear import operands
from losscli.linear.kernels import Settings, log_sums_of
from losscli.losses.formulas import widened
from losscli.losses.operators import OPERATORS
from losscli.losses.rows.topk_kl_divergence import bins_of, harmless, known_bins, reference
from losscli.operators import fallback
from losscli.operators import registration as registration  # defines torch.ops.losscli

_NAME = "topk_kl_divergence"
_COMPOSING = ("token_log_probs", "kl_divergence")
_CHUNK = 32 * 2**20
"""Bytes of logits copied per step, which fit an H100's L2 cache with others."""


def _loss(
    input: Tensor,
    classes: Tensor,
    target: Tensor,
    mask: Tensor | None,
    reduction: str,
    reverse: float,
    temperature: float,
) -> Tensor:
    _check(input, classes, target, mask)
    classes, target = harmless(classes, target, mask)
    rows, k = input.reshape(-1, input.shape[-1]), classes.shape[-1]
    eager = operands.is_eager(input, classes, target)
    if eager and not classes.is_cuda:
        operands.check_classes(_NAME, classes.reshape(-1, k), input.shape[-1])
    else:
        inside = ((classes >= 0) & (classes < input.shape[-1])).all(-1)
        classes, target = harmless(classes, target, inside, torch.nan)
    if not eager or not all(fallback.has_kernels(each, input.device.type) for each in _COMPOSING):
        settings = {"reverse": reverse, "temperature": temperature}
        return reference(input, classes, target, mask, reduction=reduction, **settings)
    of_rows = None if mask is None else mask.reshape(-1)
    bins = _Bins.apply(  # type: ignore[no-untyped-call]
        rows, classes.reshape(-1, k), of_rows, temperature
    )
    pair = known_bins(bins.view(*input.shape[:-1], bins.shape[-1]), target, input.shape[-1])
    divergence = OPERATORS["reverse_kl_divergence" if reverse else "kl_divergence"]
    loss: Tensor = divergence(*pair, mask, reduction, 1.0)
    return loss


OPERATORS[_NAME] = _loss


def _check(input: Tensor, classes: Tensor, target: Tensor, mask: Tensor | None) -> None:
    operands.check_floating(_NAME, "input", input)
    operands.check_floating(_NAME, "target", target)
    operands.check_numbers(_NAME, "classes", classes)
    fits = input.dim() > 0 and classes.dim() > 0 and classes.shape[:-1] == input.shape[:-1]
    if not fits or not 0 < classes.shape[-1] <= input.shape[-1]:
        raise ValueError(
            f"{_NAME}: classes must be (..., k) for input (..., C), with k from 1 to C, but input "
            f"is {list(input.shape)} and classes {list(classes.shape)}"
        )
    operands.check_shape(_NAME, "target", target, classes.shape, "the shape of classes")
    operands.check_mask(_NAME, mask, input.shape[:-1], "the rows")


class _Bins(torch.autograd.Function):
    """The bins of rows; second derivatives use PyTorch's operators."""

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
            found[rows, -1] = log_sums_of(others, Settings(temperature=temperature))
        ctx.save_for_backward(logits, classes, mask, found[:, -1] == -torch.inf)
        return found

    @staticmethod
    def backward(ctx: Any, incoming: Tensor) -> tuple[Tensor | None, ...]:
        logits, classes, mask, is_empty = ctx.saved_tensors
        if torch.is_grad_enabled():
            bins = bins_of(logits, classes, mask, ctx.temperature)
            (found,) = torch.autograd.grad(bins, logits, incoming, create_graph=True)
            return found, None, None, None
        of_classes = (incoming[:, :-1] / ctx.temperature).to(logits.dtype)
        # If no other class is possible, one of them gets the probability.
        others_than = torch.full_like(of_classes, -torch.inf)
        others_than[:, 0].masked_fill_(is_empty, 0.0)
        gradient = None
        for rows, others in _others(logits, classes, others_than, mask):
            # The kernel gives minus the probabilities except for one class, which is overwritten.
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
    """Yield slices of rows that fit a cache, with ``instead`` for the classes' logits."""
    size = max(_CHUNK // max(logits.shape[1] * logits.element_size(), 1), 1)
    for first in range(0, len(logits), size):
        rows = slice(first, first + size)
        others = logits[rows].scatter(1, classes[rows], instead[rows])
        if mask is not None:
            others.masked_fill_(~mask[rows].unsqueeze(1), 0.0)
        yield rows, others
