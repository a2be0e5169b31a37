"""Chooses the elements of a tensor to probe: one per tile, and where kernels tend to miss some."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

TILE = 1024
MOST_TILES = 512
"""A larger tensor has some of its tiles probed, evenly spread."""
_TAIL = 17
"""Elements of the end: more than a vector of any width."""
_ROWS = 16
"""Rows whose last element is probed."""
_WITHIN = 397
"""A prime: in each tile the element lies elsewhere, so that every lane meets some."""


def places(shape: Sequence[int], item_bytes: int) -> list[int]:
    """Return places in the flattened tensor: each tile's, both ends, the tail, ends of rows.

    Around 2^31 and 2^32, in elements and in bytes, both neighbours are among them.
    """
    count = prod(shape)
    tiles = -(-count // TILE)
    chosen = min(tiles, MOST_TILES)
    found = {0, *range(max(count - _TAIL, 0), count)}
    for number in range(chosen):
        tile = number * tiles // chosen
        found.add(tile * TILE + tile * _WITHIN % TILE)
    if len(shape) > 1:
        rows = count // max(shape[-1], 1)
        some = min(rows, _ROWS)
        found |= {(number * rows // some + 1) * shape[-1] - 1 for number in range(some)}
    for limit in (2**31, 2**32):
        for edge in (limit, limit // item_bytes):
            found |= {edge - 1, edge, edge + 1}
    return sorted(place for place in found if place < count)


def index_of(place: int, shape: Sequence[int]) -> list[int]:
    """Return the index of a place in the flattened tensor."""
    index: list[int] = []
    for extent in reversed(shape):
        place, inside = divmod(place, extent)
        index.insert(0, inside)
    return index
