"""The reductions: how the losses of the elements become the result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from torch import Tensor

Reduction = Literal["none", "mean", "sum"]
REDUCTIONS: tuple[Reduction, ...] = get_args(Reduction)


def reduce(elements: Tensor, reduction: str) -> Tensor:
    """Apply a reduction of ``REDUCTIONS``; the mean of nothing is NaN, its sum 0, as in PyTorch."""
    if reduction == "mean":
        return elements.mean()
    return elements.sum() if reduction == "sum" else elements
