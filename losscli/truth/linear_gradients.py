"""Gradients of fused linear losses: those of each logit, and their sums over rows or classes."""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple, Self

import torch
from torch import Tensor

from losscli.truth.blocks import blocks_of
from losscli.truth.distances import Truth
from losscli.truth.tolerances import finite, product_roundings, unit_roundoff

Slope = tuple[Tensor, Tensor]
"""A derivative, and how far roundings move it."""


class Gradient(NamedTuple):
    """The gradients of some rows' logits, or of what these are made of."""

    value: Tensor
    moved: Tensor
    """How far roundings may move it."""
    once: Tensor | None
    """The change from rounding logits and gradient once; None in 32 bits."""

    def changed(self, change: Callable[[Tensor], Tensor]) -> Self:
        """Return each matrix changed."""
        once = None if self.once is None else change(self.once)
        return self._replace(value=change(self.value), moved=change(self.moved), once=once)

    def times(self, slope: Slope | None) -> Self:
        """Return its product with a derivative; None for 1."""
        if slope is None:
            return self
        by, off = slope
        moved = self.moved * (by.abs() + off) + self.value.abs() * off
        return self.changed(by.mul)._replace(moved=finite(moved))

    def summed(self, length: int, rounding: float) -> Self:
        """Return it with the random walk of a product of ``length`` terms."""
        lost = product_roundings(length) * rounding * self.value.abs()
        return self._replace(moved=self.moved + finite(lost))

    def summed_over_classes(self, rounding: float) -> Self:
        """Return it with what a product over all classes, its columns, loses: small terms too."""
        size = self.value.abs()
        lost = size.masked_fill(size >= rounding * size.sum(1, keepdim=True), 0.0)
        walked = self.summed(size.shape[1], rounding)
        return walked._replace(moved=walked.moved + finite(lost))


class GradientSum:
    """An operand's gradient, accumulated from products: a matrix, or a column."""

    def __init__(self, operand: Tensor, *, is_matrix: bool) -> None:
        self.operand = operand
        *rows, columns = operand.shape if is_matrix else (*operand.shape, 1)
        shape = (math.prod(rows), columns)
        self.value = torch.zeros(shape, dtype=torch.float64, device=operand.device)
        self.moved = torch.zeros_like(self.value)
        self.once = torch.zeros_like(self.value) if operand.dtype.itemsize == 2 else None

    def add(self, gradient: Gradient, other: Tensor, place: Tensor | slice) -> None:
        """Add the product of a gradient and a matrix to some rows."""
        wide = other.double()
        self.value[place] += gradient.value @ wide
        self.moved[place] += gradient.moved @ wide.abs()
        if self.once is not None and gradient.once is not None:
            self.once[place] += gradient.once @ wide

    def truths(self) -> Iterator[Truth]:
        """Yield the gradient in the operand's shape, block by block."""
        value, moved = (each.view(self.operand.shape) for each in (self.value, self.moved))
        once = self._relative_error_of_once()
        for block in blocks_of(self.operand):
            yield Truth(block, value[block], rounding=finite(moved[block]), once_rounded=once)

    def _relative_error_of_once(self) -> float | None:
        """Return the relative error of one product of once-rounded values.

        None where too few values are in the norm, or the error is so large that a few decide it.
        """
        if self.once is None or self.value.numel() < 512:
            return None
        error, norm, dtype = 0.0, 0.0, self.operand.dtype
        for block in blocks_of(self.value):
            value = self.value[block]
            off = (value + self.once[block]).to(dtype).double() - value
            error += float(off.square().sum())
            norm += float(value.square().sum())
        found = max(math.sqrt(error / norm), unit_roundoff(dtype)) if norm else math.inf
        return found if found <= 1 / 16 else None  # NaN is none either
