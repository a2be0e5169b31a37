"""A fingerprint of a tensor: a number that shows any change, without a copy of the tensor."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from losscli.truth.blocks import block_elements, blocks

_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_FACTOR = 0x5851F42D4C957F2D
"""Odd, so that a change of one block is never multiplied away in 64 bits."""
_LOW = 2**32 - 1
_KEPT_WEIGHTS = 2**16
"""Half a MiB. Checks ask for thousands of fingerprints, most of them of smaller tensors."""


def bits(tensor: Tensor) -> Tensor:
    """Return a tensor's bits as integers: NaN equals itself, and -0 is not 0."""
    return tensor.view(_INTEGERS[tensor.element_size()])


def fingerprint(tensor: Tensor) -> int:
    """Return a weighted sum of the bits, in 64 bits.

    Weights are odd, so that a change of one element always shows. Otherwise they follow no rule, as
    changes do: a sign is one bit at the upper end, and of weights that sum to a power of two, or
    lie one apart, the sum would lose it.
    """
    limit = block_elements(tensor.device.type)
    weights = _weights(min(tensor.numel(), limit), tensor.device)
    total = torch.zeros((), dtype=torch.int64, device=tensor.device)
    for block in blocks(tensor.shape, limit):
        own = bits(tensor.detach()[block]).flatten()
        if own.dtype == torch.int64:  # An odd weight leaves the highest bit as it is.
            own = _fold(own)
        total = total * _FACTOR + (own * weights[: len(own)]).sum()
    return int(total)


def _weights(count: int, device: torch.device) -> Tensor:
    """Return at least as many weights; the usual number is kept on a CPU, which is soon asked."""
    if device.type == "cpu" and count <= _KEPT_WEIGHTS:
        return _kept_weights()
    return _made_weights(count, device)


@cache
def _kept_weights() -> Tensor:
    """Return the weights that are kept."""
    return _made_weights(_KEPT_WEIGHTS, torch.device("cpu"))


def _made_weights(count: int, device: torch.device) -> Tensor:
    """Return weights."""
    weights = _fold(torch.arange(1, count + 1, device=device) * _FACTOR)
    return _fold(weights * _FACTOR) | 1


def _fold(values: Tensor) -> Tensor:
    """Bring the upper half of 64 bits into the lower; no two values become one."""
    return (values >> 32).bitwise_and_(_LOW).bitwise_xor_(values)
