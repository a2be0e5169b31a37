"""Draws the arguments of a module from what is known of those that ``get_inputs`` gives.

The contents are always the judge's. Of the file's own only shapes, dtypes and the kind of values
are known, so that a draw stays in the domain of the loss: probabilities stay probabilities, labels
stay labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import torch
from torch import Tensor

from losscli.implementations.sandbox.methods import Argument, ArgumentFacts
from losscli.units import format_size

Draw = Literal["usual", "large", "negative"]
DRAWS: tuple[Draw, ...] = ("usual", "large", "negative")
"""``large`` has larger values and rows with sharp peaks, ``negative`` has no positive ones."""
LARGE = 8.0
"""By how much the values of ``large`` are larger: exponentials of them stay within float32."""
REDUCED_ROWS = 37
"""Rows of the small case: no multiple of a tile, a warp or a vector."""


def draw(
    facts: Sequence[ArgumentFacts], kind: Draw, generator: torch.Generator, device: str
) -> list[Argument]:
    """Return arguments, each with memory of its own."""
    return [
        Argument(plain=each.plain)
        if each.shape is None
        else Argument(values(each, kind, generator).to(device))
        for each in facts
    ]


def values(
    facts: ArgumentFacts, kind: Draw, generator: torch.Generator, rows: int | None = None
) -> Tensor:
    """Return the contents of an argument, or of so many of its rows."""
    assert facts.shape is not None
    shape = list(facts.shape) if rows is None else [rows, *facts.shape[1:]]
    dtype: torch.dtype = getattr(torch, facts.dtype)
    if not dtype.is_floating_point:
        high = max(facts.high, facts.low) + 1
        return torch.randint(facts.low, high, shape, generator=generator).to(dtype)
    return _floating(facts.kind, shape, kind, generator).to(dtype)


def _floating(kind: str, shape: list[int], draw: Draw, generator: torch.Generator) -> Tensor:
    """Return float32 values, which are rounded to the dtype of the argument afterwards."""
    normal = torch.randn(shape, generator=generator)
    scaled = normal * LARGE if draw == "large" else normal
    if kind == "signs":
        return torch.where(normal < 0, -1.0, 1.0)
    if kind == "bits":
        return torch.where(normal < 0, 0.0, 1.0)
    if kind == "probabilities":
        return scaled.softmax(-1)
    if kind == "log_probabilities":
        return scaled.log_softmax(-1)
    if kind == "unit":
        uniform = torch.rand(shape, generator=generator)
        return uniform**4 if draw == "large" else uniform
    if kind == "not_negative":
        return scaled.abs()
    return -normal.abs() if draw == "negative" else scaled


def draws(facts: Sequence[ArgumentFacts]) -> Iterator[Draw]:
    """Yield the draws that differ for these arguments."""
    free = {each.kind for each in facts if _is_floating(each)}
    yield "usual"
    if free - {"signs", "bits"}:
        yield "large"
    if "any" in free:
        yield "negative"


def reduced(facts: Sequence[ArgumentFacts]) -> list[ArgumentFacts] | None:
    """Return the arguments with fewer rows; None where they have no rows in common, or few."""
    tensors = [each for each in facts if each.shape is not None]
    rows = {each.shape[0] if each.shape else 0 for each in tensors}
    if len(rows) != 1 or rows.pop() <= REDUCED_ROWS:
        return None
    return [
        ArgumentFacts([REDUCED_ROWS, *e.shape[1:]], e.dtype, e.kind, e.low, e.high)
        if e.shape
        else e
        for e in facts
    ]


def cast(facts: Sequence[ArgumentFacts], dtype: str) -> list[ArgumentFacts]:
    """Return the arguments with floating ones in another dtype."""
    return [
        ArgumentFacts(each.shape, dtype, each.kind) if _is_floating(each) else each
        for each in facts
    ]


def elements(facts: Sequence[ArgumentFacts]) -> int:
    """Return the elements of the largest argument."""
    return max((_count(each.shape) for each in facts if each.shape is not None), default=0)


def name_of(facts: Sequence[ArgumentFacts]) -> str:
    """Name a case by the shapes and dtypes of its arguments."""
    named = [
        str(each.plain) if each.shape is None else f"{format_size(each.shape)} {each.dtype}"
        for each in facts
    ]
    return ", ".join(named)


def _is_floating(facts: ArgumentFacts) -> bool:
    return facts.shape is not None and getattr(torch, facts.dtype).is_floating_point


def _count(shape: Sequence[int]) -> int:
    count = 1
    for extent in shape:
        count *= extent
    return count
