"""Plans for computing the logits of a linear loss within a memory budget."""

import math
from dataclasses import dataclass, replace
from typing import Literal

from losscli.units import format_bytes

Kind = Literal["whole", "chunks", "slices"]
WHOLE: Kind = "whole"
CHUNKS: Kind = "chunks"
SLICES: Kind = "slices"

ROWS = 2048
"""Hidden states whose gradients are computed at a time if all logits are there."""
_UNIT = 128
"""Parts are multiples of this number of rows or classes, the tiles of matrix products."""
_LEAST_CHUNK = 512
"""Fewest rows of a chunk; with fewer, products read the weight too often."""
_USUAL_SLICE = 8192
"""Classes of a slice; more make products no faster."""
_FORWARD_BYTES = 2**28
"""Bytes of a slice's logits without gradients; more make nothing faster."""
_NUMBERS = 5
"""Numbers kept per row and slice at most, in float32 or float64."""
_SHARE_OF_FREE = 0.5
"""The fraction of free memory that a loss uses without a budget."""


@dataclass(frozen=True)
class Size:
    """The size of a fused linear loss."""

    rows: int
    width: int
    classes: int
    item: int
    """Bytes of an element."""
    gradients: bool = True
    whole: bool = True
    """Whether the logits' gradient is a multiple of their row's, so that forward can compute it."""
    reduced: bool = True
    """Whether all rows' gradients have the same factor."""
    bent: bool = False

    @property
    def sums(self) -> int:
        """Bytes of float32 sums for 16-bit gradients of the hidden states."""
        return self.rows * self.width * 4 if self.item < 4 and self.gradients else 0


@dataclass(frozen=True)
class Plan:
    """How to compute the logits.

    ``whole``: all at once; forward overwrites them with their gradient. ``chunks``: some rows at a
    time; forward accumulates the gradients in float32. ``slices``: some classes at a time; forward
    keeps a few numbers per row and slice, and the first slices' logits if memory allows; backward
    recomputes the others in a fourth product.
    """

    kind: Kind
    part: int
    """The rows of a chunk or the classes of a slice."""
    kept: int
    """The slices whose logits are kept for backward."""
    bytes: int
    """Peak memory besides operands and their gradients."""

    def __str__(self) -> str:
        if self.kind == WHOLE:
            return "all logits at once"
        if self.kind == CHUNKS:
            return f"chunks of {self.part} tokens"
        kept = f", {self.kept} kept for backward" if self.kept else ""
        return f"slices of {self.part} classes{kept}"


def whole(size: Size) -> Plan:
    """Return the plan of all logits at once."""
    some = replace(size, rows=min(size.rows, ROWS))
    return Plan(WHOLE, size.rows, 0, size.rows * size.classes * size.item + some.sums)


def chunks(size: Size, rows: int) -> Plan:
    """Return the plan of this many rows at a time."""
    total = rows * _of_chunk(size) + size.classes * size.width * max(size.item, 4) + size.sums
    return Plan(CHUNKS, rows, 0, total)


def slices(size: Size, classes: int, kept: int = 0) -> Plan:
    """Return the plan of this many classes at a time, which keeps some slices' logits."""
    one = size.rows * classes * (_at_work(size) + kept * size.item)
    return Plan(SLICES, classes, kept, one + _of_slices(size, classes) + size.sums)


def _of_slices(size: Size, classes: int) -> int:
    return _NUMBERS * max(size.item, 4) * size.rows * -(-size.classes // max(classes, 1))


def _of_chunk(size: Size) -> int:
    return size.classes * size.item + (size.width * 4 if size.item < 4 else 0)


def _at_work(size: Size) -> int:
    """Return a slice's bytes per logit: itself, its gradient, and a softcap's intermediates."""
    return size.item * (2 if size.gradients else 1) + (3 * max(size.item, 4) if size.bent else 0)


def _most(count: int, unit_bytes: int, budget: int) -> int:
    """Return how many fit a budget, in whole tiles if possible; at least one."""
    found = max(min(count, budget // max(unit_bytes, 1)), 1)
    return found if found == count or found < _UNIT else found // _UNIT * _UNIT


def _sliced(size: Size, budget: int) -> Plan:
    if not size.gradients:
        budget = min(budget, _FORWARD_BYTES)
    left = budget - size.sums
    most = _most(size.classes, size.rows * _at_work(size), left)
    most = _most(size.classes, size.rows * _at_work(size), left - _of_slices(size, most))
    if not size.gradients:
        return slices(size, most)
    usual = min(most, _USUAL_SLICE)
    each = max(size.rows * usual * size.item, 1)
    kept = max(budget - slices(size, usual).bytes, 0) // each
    return slices(size, usual, min(kept, -(-size.classes // usual)))


def least(size: Size) -> Plan:
    """Return the plan of least memory: whole, or a number of slices near the square root."""
    numbers = range(1, 2 * math.isqrt(size.classes) + 2)
    found = [slices(size, max(-(-size.classes // number), 1)) for number in numbers]
    if size.whole and size.gradients:
        found.append(whole(size))
    return min(found, key=lambda plan: plan.bytes)


def candidates(size: Size, budget: int) -> list[Plan]:
    """Return plans within the budget's limits, fastest first."""
    found = []
    if size.whole and size.gradients:
        found.append(whole(size))
        if size.reduced:
            rows = _most(size.rows, _of_chunk(size), budget - chunks(size, 0).bytes)
            if rows >= min(size.rows, _LEAST_CHUNK):
                found.append(chunks(size, rows))
    found.append(_sliced(size, budget))
    return found


def choose(size: Size, budget: int | None, free: int) -> Plan:
    """Return the fastest plan within a budget, by default half of ``free``; ValueError if none."""
    most = int(free * _SHARE_OF_FREE) if budget is None else budget
    for plan in candidates(size, most):
        if plan.bytes <= most:
            return plan
    smallest = least(size)
    if budget is None or smallest.bytes <= most:
        return smallest
    raise ValueError(
        f"memory_budget is {format_bytes(budget)}, but no plan takes less than "
        f"{format_bytes(smallest.bytes)}: give at least {smallest.bytes} bytes"
    )
