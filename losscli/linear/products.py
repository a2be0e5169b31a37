"""Matrix products; products of 16 bits return float32 sums."""

from collections.abc import Iterator
from typing import NamedTuple, Self

import torch
from torch import Tensor

from losscli.losses.aten import linear

NARROW = (torch.float16, torch.bfloat16)
_MOST = 2.0**14
"""A power of two that float16 holds, also doubled."""
_LEAST = 2.0**-64
"""Smaller numbers make no gradient that float16 holds."""


class Layer(NamedTuple):
    """A linear layer and its hidden states."""

    hidden: Tensor
    weight: Tensor
    bias: Tensor | None

    def logits(self) -> Tensor:
        """Return all logits."""
        return linear(self.hidden, self.weight, self.bias)

    def of_rows(self, rows: slice) -> Self:
        """Return the layer with some rows."""
        return self._replace(hidden=self.hidden[rows])

    def of_classes(self, classes: slice) -> Self:
        """Return the layer with some classes."""
        bias = None if self.bias is None else self.bias[classes]
        return self._replace(weight=self.weight[classes], bias=bias)


def wide(first: Tensor, second: Tensor) -> Tensor:
    """Return ``first @ second``, in float32 for 16 bits."""
    if first.dtype not in NARROW:
        return first @ second
    if first.is_cuda:
        return torch.mm(first, second, out_dtype=torch.float32)
    return first.float() @ second.float()


def add(total: Tensor | None, first: Tensor, second: Tensor) -> Tensor:
    """Add ``first @ second`` to ``total`` in place; None is a total of zeros."""
    if total is None:
        return wide(first, second)
    if first.is_cuda and first.dtype in NARROW:
        torch.addmm(total, first, second, out_dtype=torch.float32, out=total)
    else:
        total.addmm_(first.to(total.dtype), second.to(total.dtype))
    return total


def row_sums(of: Tensor, factors: Tensor) -> Tensor:
    """Return the weighted sum of rows, in the dtype of the factors."""
    if of.dtype in NARROW and not of.is_cuda:
        return factors @ of.to(factors.dtype)
    power = _power_that_fits(factors, of.dtype)
    narrow = (factors / power).to(of.dtype).unsqueeze(0)
    return wide(narrow, of).squeeze(0).to(factors.dtype) * power


def power_of(numbers: Tensor) -> Tensor:
    """Return the power of two at or below each magnitude; 1 for 0 and non-finite numbers."""
    size = numbers.abs().nan_to_num(0.0, 0.0, 0.0)
    return torch.exp2(torch.floor(torch.log2(torch.where(size == 0, 1.0, size))))


def _power_that_fits(numbers: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the power of two that scales the largest number to float16's range, or 1.

    Numbers up to 2**28 times smaller then keep their digits.
    """
    if dtype != torch.float16 or numbers.numel() == 0:
        return numbers.new_ones(())
    largest = numbers.abs().nan_to_num(0.0, 0.0, 0.0).amax().clamp(min=_LEAST)
    return power_of(largest) / _MOST


def times_rows(rows: Tensor, factors: Tensor, out: Tensor) -> Tensor:
    """Write scaled rows divided by a power of two; return the power."""
    largest = factors
    if rows.dtype == torch.float16 and rows.numel() > 0:
        largest = torch.linalg.vector_norm(rows, torch.inf, dim=1) * factors
    power = _power_that_fits(largest, rows.dtype)
    torch.mul(rows, (factors / power).unsqueeze(1), out=out)
    return power


def weight_gradient(gradient: Tensor, hidden: Tensor, power: Tensor, to: Tensor) -> None:
    """Write the product times a number, without accumulating in 16 bits."""
    if gradient.dtype != torch.float16:
        torch.mm(gradient.t(), hidden, out=to)
        return
    # Before the multiplication, the sums may overflow float16.
    for classes in parts(gradient.shape[1], max(gradient.shape[1] // 8, 128)):
        to[classes] = wide(gradient[:, classes].t(), hidden).mul_(power)


def parts(count: int, size: int) -> Iterator[slice]:
    """Yield slices of ``size`` items of ``count``; at least one."""
    for first in range(0, max(count, 1), size):
        yield slice(first, min(first + size, count))
