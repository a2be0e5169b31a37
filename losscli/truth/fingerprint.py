"""Bitwise comparison of tensors, and marks that detect changes."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from losscli.truth.blocks import block_elements, blocks

_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_FACTOR = 0x5851F42D4C957F2D
"""Odd, so that 64-bit multiplication loses no change."""
_LOW = 2**32 - 1
_COPIED_ELEMENTS = 2**16
"""Largest tensor that is copied, at most half a MiB."""
_COMPARED_ELEMENTS = 2**24
"""Compared at once: temporaries stay below 16 MiB, and 2^30 elements take 64 steps."""


def bits(tensor: Tensor) -> Tensor:
    """Return a tensor's bits as integers: NaN equals itself, -0 differs from 0."""
    return tensor.view(_INTEGERS[tensor.element_size()])


def same_bits(one: Tensor | None, other: Tensor | None) -> bool:
    """Tell whether two results are bitwise equal."""
    if one is None or other is None:
        return one is other
    if (one.shape, one.dtype, one.device) != (other.shape, other.dtype, other.device):
        return False
    parts = blocks(one.shape, _COMPARED_ELEMENTS)
    return all(torch.equal(bits(one[block]), bits(other[block])) for block in parts)


@dataclass(frozen=True)
class Mark:
    """A tensor's contents, to detect changes."""

    bits: Tensor | None
    """Of a small tensor, compared ten times faster than a fingerprint."""
    fingerprint: int = 0

    @classmethod
    def of(cls, tensor: Tensor) -> Self:
        """Mark a tensor."""
        if tensor.numel() <= _COPIED_ELEMENTS:
            return cls(bits(tensor.detach()).clone())
        return cls(None, fingerprint(tensor))

    def is_of(self, tensor: Tensor) -> bool:
        """Tell whether a tensor is unchanged."""
        if self.bits is None:
            return fingerprint(tensor) == self.fingerprint
        return torch.equal(self.bits, bits(tensor.detach()))


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
    return (values >> 32).bitwise_and_(_LOW).bitwise_xor_(values)
