"""Triplet margin loss of rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from losscli.machine.pytorch import Tensor, torch

from ..calling import Arguments, reduction_of
from ..fields import LOSS, Operand, Parameter, Relations, Terms, switch
from ..formulas import in_float32
from ..making import row_loss
from ..shapes import broadcast_tensors, remedy
from .calls import RowCalls
from .terms import OF_VECTORS, LazyTerms


class _TripletCalls(RowCalls):
    def check(self, given: Mapping[str, float]) -> None:
        # PyTorch's norm may have an infinite degree.
        super().check({n: v for n, v in given.items() if n != "p" or abs(v) != math.inf})


def _rows(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: float = 0.0,
) -> Tensor:
    def distance(a: Tensor, b: Tensor) -> Tensor:
        difference = a - b + eps
        # PyTorch's norm of degree 1 sums sequentially and loses 100 ulp over 50,000 numbers.
        found: Tensor = difference.abs().sum(-1) if p == 1 else torch.norm(difference, p, -1)
        return found

    other = distance(anchor, negative)
    if swap:
        other = torch.minimum(other, distance(positive, negative))
    return (distance(anchor, positive) - other + margin).clamp_min(0)


def _terms(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: float = 0.0,
) -> LazyTerms:
    near = _Distance.of(anchor, positive, p, eps)
    far = _Distance.of(anchor, negative, p, eps)
    farther = _Distance.of(positive, negative, p, eps)
    other = far.length.minimum(farther.length) if swap else far.length
    sizes = near.size.fmax(farther.size if swap else near.size).fmax(far.size).clamp(min=margin)

    above = near.length - other + margin
    active = _share(above, sizes, above == 0)
    is_far, is_farther = active, active * swap
    if swap:
        same = (anchor == positive).all(-1)  # other ties may not survive a rounding
        is_far = is_far * _share(farther.length - far.length, sizes, same)
        is_farther = is_farther * _share(far.length - farther.length, sizes, same)
    of_near = near.slope * active.unsqueeze(-1)
    of_far = far.slope * is_far.clamp(max=_EITHER).unsqueeze(-1)
    of_farther = farther.slope * is_farther.clamp(max=_EITHER).unsqueeze(-1)

    return LazyTerms(
        {
            LOSS: lambda: sizes * active.clamp(max=1),
            "anchor": lambda: of_near.fmax(of_far),
            "positive": lambda: of_near.fmax(of_farther),
            "negative": lambda: of_far.fmax(of_farther),
        }
    )


_NAMES = ("anchor", "positive", "negative")
_ROUNDINGS = 2.0**-17
"""How far a row's loss may be off in float32, relative to its largest term; generous."""
_EITHER = 2.0**23
"""The factor of a gradient's terms if either side of a kink is right: 4 float32 ULP of them equal
the gradient."""


def _share(above: Tensor, sizes: Tensor, decided: Tensor) -> Tensor:
    share = (above >= 0).to(above.dtype)
    return share.masked_fill(~decided & (above.abs() <= _ROUNDINGS * sizes), _EITHER)


class _Distance(NamedTuple):
    """The norm of a difference, and the magnitudes of its terms and its gradient's."""

    length: Tensor
    size: Tensor
    slope: Tensor

    @classmethod
    def of(cls, a: Tensor, b: Tensor, p: float, eps: float) -> _Distance:
        difference = a - b + eps
        # The difference is rounded before eps is added.
        size = difference.abs().fmax((a - b).abs())
        length = torch.norm(difference, p, -1, keepdim=True)
        of_size = torch.norm(size, p, -1, keepdim=True)
        # ``(|difference| / length)^(p - 1)``: the power multiplies its base's error.
        base = (difference.abs() / length) ** (p - 1)
        off = max(abs(p - 1), 1.0) * (size / difference.abs()).fmax(of_size / length)
        slope = (base * off).nan_to_num(nan=0.0, posinf=0.0)
        return cls(length.squeeze(-1), of_size.squeeze(-1), slope)


def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Arguments:
    """Triplet margin loss, as torch.nn.functional.triplet_margin_loss, with fused backward.

    A row's loss is ``max(0, d(anchor, positive) - d(anchor, negative) + margin)``, with ``d(a, b)``
    the p-norm of ``a - b + eps``. As in PyTorch, where the one-sided derivatives differ the
    left one counts, and the derivative of a norm of 0 is 0. If a p-th power overflows (the square
    of 1.9e19 in float32 and bfloat16), the distance is infinite, without a gradient, and the loss
    of two such distances is NaN.

    Args:
        anchor: vectors, ``(..., D)``; differentiable.
        positive: vectors that broadcast with ``anchor``; differentiable.
        negative: vectors that broadcast with ``anchor``; differentiable. As in PyTorch, a distance
            between one-element vectors has one term, whatever the third operand's length.
        p: the degree of the norm. Infinity and degrees of at most 0 use PyTorch operators.

    Raises:
        ValueError: the margin is not above 0.
        RuntimeError: the operands differ in their numbers of dimensions.
    """
    reduction = reduction_of(reduction, size_average, reduce)
    operands: tuple[Tensor, ...] = (anchor, positive, negative)
    dimensions = anchor.dim()
    if not dimensions == positive.dim() == negative.dim():
        whole = max((each.shape for each in operands), key=len)
        ways = (remedy(n, x.shape, whole) for n, x in zip(_NAMES, operands, strict=True))
        raise RuntimeError(
            "triplet_margin: anchor, positive and negative must have the same number of "
            f"dimensions, but have shapes {', '.join(str(list(x.shape)) for x in operands)}"
            f"{''.join(ways)}"
        )
    composed = dimensions == 0
    if not anchor.shape == positive.shape == negative.shape:
        composed = not anchor.shape[-1] == positive.shape[-1] == negative.shape[-1]
        if not composed:
            operands = broadcast_tensors("triplet_margin", _NAMES, operands)
    return Arguments(
        operands,
        reduction,
        (margin, p, eps, swap),
        restored=lambda gradient: gradient.sum_to_size(anchor.shape),
        composed=composed or not 0 < p < math.inf,
    )


SPEC = row_loss(
    triplet_margin_loss,
    "TripletMarginLoss",
    calls=_TripletCalls("triplet_margin"),
    formula="max(0, |a - b + eps|_p - |a - c + eps|_p + margin)",
    operands=(
        Operand("anchor", "vectors"),
        Operand("positive", "vectors"),
        Operand("negative", "vectors"),
    ),
    parameters=(
        Parameter("margin", 1.0, 0.0, "how much nearer the positive is to be", 0.7, open=True),
        Parameter("p", 2.0, -math.inf, "degree of the norm", 1.0, other=1.0, usual=(0.5, 8.0)),
        Parameter("eps", 1e-6, -math.inf, "added to each difference", 1e-5, other=1e-3),
        switch("swap", False, "use the smaller of the negative's distances to anchor and positive"),
    ),
    reference=in_float32(_rows),
    **OF_VECTORS,
    from_kinks=lambda a, b, c, p, eps, **_: (a - b + eps, a - c + eps) if p == 1 else (),
    relations=Relations(reordered=True),
    terms=Terms(_terms, "two distances and a margin, whose gradients are differences of vectors"),
)
