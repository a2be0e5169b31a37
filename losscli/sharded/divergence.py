"""Divergences of two sets of logits whose classes are spread over ranks alike.

Of a rank, with P and Q the shares of all probabilities of p and q that its classes have, a row's
divergence is ``Q * (D + log(Q / P))``, where D is the divergence among its own classes: the chain
rule of the relative entropy (Cover and Thomas, Elements of Information Theory, theorem 2.5.3).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from losscli.linear.calls import check_settings
from losscli.linear.kernels import Settings, some_rows
from losscli.linear.operands import check_floating, check_mask, check_shape
from losscli.linear.parts import Part, Terms, refuse_second_derivatives, together
from losscli.linear.rows import Rows
from losscli.losses.formulas import widened

from .functions import check_plain
from .ranks import Ranks


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
    """Kullback-Leibler divergence of logits whose classes are spread over ranks.

    As :func:`losscli.functional.kl_divergence` of all logits: with p the softmax of ``input / T``
    and q that of ``target / T``, the sum of ``q * log(q / p)``. One all-gather of 20 bytes a row
    and rank in float32.

    Args:
        input: this rank's logits, ``(..., C_r)``; differentiable once.
        target: logits of the same shape, of the same classes; differentiable once.
        group: as in :func:`cross_entropy`.
        sizes: as in :func:`cross_entropy`.
        temperature: divides both sets of logits; above 0.
        mask: bool, ``(...)``: the rows that count; None for all; the same on all ranks.
        reduction: ``none``, ``mean`` (over the rows that count) or ``sum``.

    Returns:
        The loss in the promoted dtype, the same bits on all ranks.

    Raises:
        As :func:`cross_entropy`.
    """
    return _divergence("kl_divergence", input, target, group, sizes, temperature, mask, reduction)


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
    """Return :func:`kl_divergence` with the two sets of logits in each other's place.

    As :func:`losscli.functional.reverse_kl_divergence`: the sum of ``p * log(p / q)``.

    Args:
        input: this rank's logits, ``(..., C_r)``; differentiable once.
        target: logits of the same shape, of the same classes; differentiable once.
        group: as in :func:`kl_divergence`, and so are the arguments that follow.
        sizes: how many classes each rank has.
        temperature: divides both sets of logits.
        mask: the rows that count.
        reduction: ``none``, ``mean`` or ``sum``.

    Returns:
        The loss in the promoted dtype, the same bits on all ranks.

    Raises:
        As :func:`cross_entropy`.
    """
    name = "reverse_kl_divergence"
    return _divergence(name, target, input, group, sizes, temperature, mask, reduction)


def _divergence(
    name: str,
    first: Tensor,
    second: Tensor,
    group: Any,
    sizes: Sequence[int] | None,
    temperature: float,
    mask: Tensor | None,
    reduction: str,
) -> Tensor:
    check_settings(name, Settings(temperature=temperature), reduction)
    for said, logits in (("input", first), ("target", second)):
        check_floating(name, said, logits)
    check_plain(name, first, second, mask)
    check_shape(name, "target", second, first.shape, "the shape of input")
    if first.dim() == 0:
        raise ValueError(f"{name}: input must be (..., C_r), but is a number")
    shape, width = first.shape[:-1], first.shape[-1]
    check_mask(name, mask, shape, "the rows")
    ranks = Ranks.of(name, group, width, sizes, first.device)
    of_rows = None if mask is None else mask.reshape(-1)
    rows = shape.numel()
    losses: Tensor = _Divergence.apply(  # type: ignore[no-untyped-call]
        first.reshape(rows, width), second.reshape(rows, width), of_rows, temperature, ranks
    )
    dtype = torch.promote_types(first.dtype, second.dtype)
    if reduction == "none":
        return losses.view(shape).to(dtype)
    total = losses.sum(dtype=torch.float64)
    if reduction == "mean":
        total = total / (rows if of_rows is None else of_rows.sum())
    return total.to(dtype)


class _Divergence(torch.autograd.Function):
    """The divergence of q from p in each row; first derivatives alone."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, y: Tensor, mask: Tensor | None, temperature: float, ranks: Ranks
    ) -> Tensor:
        """Return the divergence of each row."""
        pair = [_terms(logits, temperature) for logits in (x, y)]
        wide = torch.promote_types(pair[0].log.dtype, pair[1].log.dtype)
        inside = pair[0].log.new_zeros(len(x))
        if x.shape[1] > 0 and len(x) > 0:
            inside = _among_own(x, y, mask, temperature)
        numbers = [inside, *(each for terms in pair for each in (terms.top, terms.log))]
        found = ranks.gather([each.to(wide) for each in numbers])
        inside, *of_pair = found.numbers
        wholes, shares = [], []
        for top, log in (of_pair[:2], of_pair[2:]):
            none = torch.zeros_like(top)
            whole, share = together(Terms(none, top, log), none.bool(), temperature)
            wholes.append(whole)
            shares.append(share)
        of_p, of_q = shares
        # Where a rank has no possible class of one of them, its own divergence is no number.
        inside = torch.where((of_p == -torch.inf) | (of_q == -torch.inf), 0.0, inside)
        terms = of_q.exp() * (inside + (of_q - of_p))
        losses = torch.where(of_q == -torch.inf, 0.0, terms).sum(0)
        impossible = (wholes[0].log == -torch.inf) | (wholes[1].log == -torch.inf)
        losses = torch.where(impossible, torch.nan, losses)
        if found.is_right is not None:
            losses = torch.where(found.is_right, losses, torch.nan)
        if mask is not None:
            losses = torch.where(mask, losses, 0.0)
        if any(ctx.needs_input_grad):
            kept = [each for whole in wholes for each in (whole.top, whole.log)]
            ctx.save_for_backward(x, y, mask, losses, *kept)
        ctx.temperature = temperature
        return losses

    @staticmethod
    def backward(ctx: Any, incoming: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients, in chunks of rows that a cache holds in float32."""
        refuse_second_derivatives()
        x, y, mask, losses, top_p, log_p, top_q, log_q = ctx.saved_tensors
        temperature, wanted = ctx.temperature, ctx.needs_input_grad
        of_x = torch.empty_like(x) if wanted[0] else None
        of_y = torch.empty_like(y) if wanted[1] else None
        for rows in some_rows(x):
            scale = (incoming[rows] / temperature).unsqueeze(1)
            logs = [
                ((logits[rows].to(losses.dtype) - top[rows].unsqueeze(1)) / temperature).sub_(
                    log[rows].unsqueeze(1)
                )
                for logits, top, log in ((x, top_p, log_p), (y, top_q, log_q))
            ]
            q = logs[1].exp()
            left_out = None if mask is None else ~mask[rows].unsqueeze(1)
            found = []
            if of_x is not None:
                found.append((of_x, (logs[0].exp() - q).mul_(scale)))
            if of_y is not None:
                excess = (logs[1] - logs[0]).sub_(losses[rows].unsqueeze(1))
                # 0 times infinity is 0; and of a probability of 1 the excess is rounding alone.
                slope = torch.where((q == 0) | (q == 1), 0.0, q * excess)
                found.append((of_y, slope.mul_(scale)))
            for gradient, part in found:
                gradient[rows] = part if left_out is None else part.masked_fill_(left_out, 0.0)
        return of_x, of_y, None, None, None


def _among_own(x: Tensor, y: Tensor, mask: Tensor | None, temperature: float) -> Tensor:
    """Return the divergence among this rank's classes; of 16 bits it is not rounded to them."""
    kernel = torch.ops.losscli.kl_divergence
    wide = widened(torch.promote_types(x.dtype, y.dtype))
    if wide in (x.dtype, y.dtype):
        found: Tensor = kernel(x, y, mask, "none", temperature)
        return found
    return torch.cat(
        [
            kernel(
                *(x[rows].to(wide), y[rows].to(wide)),
                *(None if mask is None else mask[rows], "none", temperature),
            )
            for rows in some_rows(x)
        ]
    )


def _terms(logits: Tensor, temperature: float) -> Terms:
    """Return the largest logit of each row and the sum of exponentials beside it."""
    target = torch.zeros(len(logits), dtype=torch.int64, device=logits.device)
    settings = Settings(temperature=temperature)
    rows = Rows(target, logits.shape[1], None, settings, "none", False, False)
    return Part(rows, logits, slice(0, logits.shape[1])).terms()
