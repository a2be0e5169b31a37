"""Bitwise comparison of tensors, and marks that detect changes."""

import torch
from torch import Tensor

from losscli.truth.blocks import block_elements, blocks

_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_FACTOR = 0x5851F42D4C957F2D
"""Odd, so that 64-bit multiplication loses no change."""


def bits(tensor: Tensor) -> Tensor:
    """Return a tensor's bits as integers: NaN equals itself, -0 differs from 0."""
    return tensor.view(_INTEGERS[tensor.element_size()])


def same_bits(one: Tensor | None, other: Tensor | None) -> bool:
    """Tell whether two results are bitwise equal."""
    if one is None or other is None:
        return one is other
    if (one.shape, one.dtype, one.device) != (other.shape, other.dtype, other.device):
        return False
    # Temporaries stay below 16 MiB, and 2^30 elements take 64 steps.
    parts = blocks(one.shape, 2**24)
    return all(torch.equal(bits(one[block]), bits(other[block])) for block in parts)


def mark_of(tensor: Tensor) -> Tensor | int:
    """Return a fingerprint that detects a change; of a small tensor its bits, ten times faster."""
    small = tensor.numel() <= 2**16  # a copy takes at most half a MiB
    return bits(tensor.detach()).clone() if small else fingerprint(tensor)


def has_mark(tensor: Tensor, mark: Tensor | int) -> bool:
    """Tell whether a tensor is unchanged since ``mark_of``."""
    if isinstance(mark, int):
        return fingerprint(tensor) == mark
    return torch.equal(mark, bits(tensor.detach()))


def fingerprint(tensor: Tensor) -> int:
    """Return a 64-bit sum of bits, whose odd, irregular weights show any change of one element."""
    limit = block_elements(tensor.device.type)
    count = min(tensor.numel(), limit)
    weights = _fold(torch.arange(1, count + 1, device=tensor.device) * _FACTOR)
    weights = _fold(weights * _FACTOR) | 1
    total = torch.zeros((), dtype=torch.int64, device=tensor.device)
    for block in blocks(tensor.shape, limit):
        own = bits(tensor.detach()[block]).flatten()
        if own.dtype == torch.int64:  # An odd weight leaves the highest bit as it is.
            own = _fold(own)
        total = total * _FACTOR + (own * weights[: len(own)]).sum()
    return int(total)


def _fold(values: Tensor) -> Tensor:
    """Fold the upper half of 64 bits into the lower, injectively."""
    return (values >> 32).bitwise_and_(2**32 - 1).bitwise_xor_(values)
