"""Operands of 16 bits as float32, for references of many steps that would round after each."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def widened(*operands: Tensor) -> tuple[tuple[Tensor, ...], torch.dtype]:
    """Return the operands in their promoted dtype, at least float32, and that of the loss."""
    import torch

    dtype = operands[0].dtype
    for operand in operands[1:]:
        dtype = torch.promote_types(dtype, operand.dtype)
    wide = torch.promote_types(dtype, torch.float32)
    return tuple(operand.to(wide) for operand in operands), dtype
