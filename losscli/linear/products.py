"""Matrix products, of 16 bits with sums that leave in float32."""

from __future__ import annotations

import torch
from torch import Tensor

NARROW = (torch.float16, torch.bfloat16)


def wide(first: Tensor, second: Tensor) -> Tensor:
    """Return ``first @ second``, of 16 bits in float32."""
    if first.dtype not in NARROW:
        return first @ second
    if first.is_cuda:
        return torch.mm(first, second, out_dtype=torch.float32)
    return first.float() @ second.float()


def add(total: Tensor | None, first: Tensor, second: Tensor) -> Tensor:
    """Return ``total + first @ second``, which is added in place; None is a total of zeros."""
    if total is None:
        return wide(first, second)
    if first.is_cuda and first.dtype in NARROW:
        torch.addmm(total, first, second, out_dtype=torch.float32, out=total)
    elif first.dtype in NARROW:
        total.addmm_(first.float(), second.float())
    else:
        total.addmm_(first, second)
    return total


def row_sums(of: Tensor, factors: Tensor) -> Tensor:
    """Return the sum of the rows, each times its factor, in the dtype of the factors."""
    if of.dtype in NARROW and not of.is_cuda:
        return factors @ of.to(factors.dtype)
    return wide(factors.to(of.dtype).unsqueeze(0), of).squeeze(0).to(factors.dtype)
