"""A document: a report as plain data for each renderer, the answer first."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar

from losscli.runs.grouping import grouped
from losscli.runs.judgements import SAME_WITHIN

B = TypeVar("B")
Side = Literal["left", "right"]
State = Literal["", "good", "warn", "bad", "off"]
"""The colour of a cell or a note; the text says the same."""


@dataclass(frozen=True)
class Verbatim:
    """Text that is already laid out, which only a page shows."""

    text: str
    wraps: bool = False
    """Whether its lines are sentences, which may wrap in a narrow window."""


Unit = Literal["bytes", "operand bytes", "seconds", "GB/s", "fraction", "products", "ratio", "ulp"]
Kind = Literal["lines", "marks", "forest", "strips"]


@dataclass(frozen=True)
class Sentence:
    """A paragraph."""

    text: str
    state: State = ""


@dataclass(frozen=True)
class Table:
    """A table of texts."""

    headers: Sequence[str]
    """May have several lines; empty for columns without header."""
    rows: Sequence[Sequence[str]]
    align: Sequence[Side] | None = None
    """By default numbers are aligned to the right."""
    by_case: bool = False
    """Whether the first column names the case of its rows, once, and may wrap."""
    least: Sequence[str] = ()
    """Headers of columns that a narrow terminal drops, in order."""
    wraps: bool = False
    """Whether the last column wraps to fit the width."""
    splits: bool = False
    """Whether columns that do not fit go to another table, next to the first column."""


@dataclass(frozen=True)
class Notes:
    """Lines below a table."""

    lines: Sequence[str]
    state: State = ""


@dataclass(frozen=True)
class Point:
    """A value of a series, with an interval in forest plots, or from p20 to p80 in strips."""

    label: str
    """The row of a forest plot or strip; the tooltip of a mark."""
    x: float
    y: float = 0.0
    """In strips, the index of the process."""
    low: float = 0.0
    high: float = 0.0


@dataclass(frozen=True)
class Series:
    """The points of an implementation."""

    name: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Plot:
    """A plot of points; text and Markdown omit it, since a table has its numbers.

    Lines, and marks without lines, have ``y`` over ``x``. A forest has ratios ``x`` with intervals.
    Strips have a tick for each sample ``x``, its distance from the median.
    """

    name: str
    """The name that ``losscli report --plot`` takes."""
    title: str
    kind: Kind
    series: tuple[Series, ...]
    x: Unit
    y: Unit = "ratio"
    roof: tuple[tuple[float, float], ...] = ()
    """The limit above lines; the axis reaches to its ends."""
    cache_bytes: int | None = None
    """Largest ``x`` at which the operands fit in a cache."""
    band: float = 0.0
    """Distance of a ratio from 1 that counts as the same."""
    sides: tuple[str, str] = ("slower", "faster")
    """The meaning of a ratio below 1, and above."""

    @classmethod
    def forest(
        cls, name: str, title: str, points: Mapping[str, Iterable[Point]], **more: Any
    ) -> "Plot":
        """Return a plot of ratios by implementation."""
        series = tuple(Series(each, tuple(own)) for each, own in points.items())
        return cls(name, title, "forest", series, "ratio", **{"band": SAME_WITHIN, **more})


@dataclass(frozen=True)
class Part:
    """A document with a title."""

    title: str
    document: "Document"
    folded: bool = False


Block: TypeAlias = Sentence | Table | Plot | Notes | Verbatim | Part
Document: TypeAlias = tuple[Block, ...]


def case_table(headers: Sequence[str], rows: Iterable[Sequence[str]], **more: Any) -> Table:
    """Return a table whose rows begin with their case, named once for several rows."""
    return Table(["case", *headers], named_once(rows), by_case=True, **more)


def named_once(rows: Iterable[Sequence[str]]) -> list[list[str]]:
    """Return rows grouped by their first cell, which only a group's first row keeps."""
    return [
        ["" if index else name, *cells]
        for name, group in grouped(rows, lambda row: row[0]).items()
        for index, (_, *cells) in enumerate(group)
    ]


def blocks_of(document: Document, kind: type[B]) -> Iterator[B]:
    """Yield the blocks of a kind in a document and its parts."""
    for block in document:
        if isinstance(block, kind):
            yield block
        elif isinstance(block, Part):
            yield from blocks_of(block.document, kind)
