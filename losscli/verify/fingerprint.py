"""A number that tells whether a tensor is still what it was, without a copy of it."""

from __future__ import annotations

import torch
from torch import Tensor

from losscli.blocks import block_elements, blocks

_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_FACTOR = 0x5851F42D4C957F2D
"""Odd, so that a change of one block is never multiplied away in 64 bits."""


def bits(tensor: Tensor) -> Tensor:
    """Return a tensor's bits as integers: NaN equals itself, and -0 is not 0."""
    return tensor.view(_INTEGERS[tensor.element_size()])


def fingerprint(tensor: Tensor) -> int:
    """Return a weighted sum of the bits, in 64 bits.

    Weights are odd and differ within a block: a change of one element always shows, and so do
    elements that trade places.
    """
    limit = block_elements(tensor.device.type)
    count = min(tensor.numel(), limit)
    weights = torch.arange(count, device=tensor.device) * 2 + 1
    total = torch.zeros((), dtype=torch.int64, device=tensor.device)
    for block in blocks(tensor.shape, limit):
        own = bits(tensor.detach()[block]).flatten()
        total = total * _FACTOR + (own * weights[: len(own)]).sum()
    return int(total)
