"""Walks a tensor in blocks, one slice per dimension, so that no temporary has full size."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from losscli.losses import HIDDEN_STATE

if TYPE_CHECKING:
    from torch import Tensor

    from losscli.cases.case import Case

Block = tuple[slice, ...]

BLOCK_ELEMENTS = 2**18
"""2 MiB in float64: temporaries fit a CPU's cache, and the allocator reuses them (2^20 took nine
times as long)."""


def logits_block_elements(device: str) -> int:
    """Return how many logits are processed at once on a device: products are efficient."""
    return 2**22 if device == "cpu" else 2**27


def linear_oracle_bytes(case: Case) -> int:
    """Return the bytes that the fused linear oracle needs; 0 for other losses."""
    if case.spec.unit != HIDDEN_STATE:
        return 0
    gradients = sum(math.prod(case.shapes[name]) for name in case.spec.trained)
    logits = min(case.temporary_elements, logits_block_elements(case.device))
    return 8 * (3 * gradients + 14 * logits)  # so many float64 tensors of each are held at once


def block_elements(device: str) -> int:
    """Return how many elements are processed at once on a device."""
    # They hide a GPU's launches; sixteen float64 temporaries are half a GiB.
    return BLOCK_ELEMENTS if device == "cpu" else 2**22


def whole(shape: Sequence[int]) -> Block:
    """Return the block of a whole shape."""
    return tuple(slice(0, extent) for extent in shape)


def blocks(shape: Sequence[int], limit: int = BLOCK_ELEMENTS) -> Iterator[Block]:
    """Yield blocks of at most ``limit`` elements that cover ``shape``; a scalar is one block."""
    if not shape or math.prod(shape) <= limit:
        yield whole(shape)
        return
    rows = max(limit // math.prod(shape[1:]), 1)
    for start in range(0, shape[0], rows):
        for rest in blocks(shape[1:], limit):
            yield (slice(start, min(start + rows, shape[0])), *rest)


def blocks_of(tensor: Tensor) -> Iterator[Block]:
    """Yield blocks of as many elements as its device processes at once."""
    return blocks(tensor.shape, block_elements(tensor.device.type))


def part(operand: Tensor, block: Block) -> Tensor:
    """Return an operand's part in a block of the broadcast shape."""
    own = zip(operand.shape, block[len(block) - operand.dim() :], strict=True)
    return operand[tuple(slice(None) if extent == 1 else cut for extent, cut in own)]
