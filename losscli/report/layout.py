"""The layout of tables: the case's name once, beside the rows of the case."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from itertools import zip_longest

CASE = "case"
GAP = 2
"""Between columns."""
NARROWEST_CASE = 8
WIDEST_IMPLEMENTATION = 16


def beside_case(
    headers: Sequence[str], groups: Mapping[str, Sequence[Sequence[str]]], width: int | None
) -> tuple[list[str], list[list[str]]]:
    """Put the column of the cases before those of ``headers``.

    Args:
        headers: of the other columns; they may have several lines.
        groups: the other cells of each row, by the name of its case.
        width: that the table is to stay within; names are broken to do so. None is any.
    """
    cells = [row for group in groups.values() for row in group]
    room = 0
    if width is not None:
        titles = zip_longest(*(header.split("\n") for header in headers), fillvalue="")
        widths = [max(map(len, column)) for column in zip(*titles, *cells, strict=True)]
        room = max(width - sum(widths) - GAP * len(widths), NARROWEST_CASE)
    rows = []
    for name, group in groups.items():
        lines = textwrap.wrap(name, room) if 0 < room < len(name) else [name]
        for index in range(max(len(group), len(lines))):
            line = lines[index] if index < len(lines) else ""
            row = group[index] if index < len(group) else [""] * len(headers)
            rows.append([line, *row])
    return [CASE, *headers], rows


def plain(headers: Sequence[str], rows: Sequence[Sequence[str]], align: Sequence[str]) -> str:
    """Lay out a table for a terminal; tabulate takes seconds for ten thousand rows.

    Args:
        headers: of the columns; they may have several lines.
        rows: their cells.
        align: ``left`` or ``right``, for each column.
    """
    titles = list(zip_longest(*(header.split("\n") for header in headers), fillvalue=""))
    widths = [max(map(len, column)) for column in zip(*titles, *rows, strict=True)]
    sides = [">" if side == "right" else "<" for side in align]
    form = (" " * GAP).join(
        f"{{:{side}{width}}}" for side, width in zip(sides, widths, strict=True)
    )
    rule = (" " * GAP).join("-" * width for width in widths)
    lines = [form.format(*row).rstrip() for row in titles]
    return "\n".join([*lines, rule, *(form.format(*row).rstrip() for row in rows)])


def shorten(implementation: str) -> str:
    """Cut the name of an implementation that would leave no room for the case."""
    if len(implementation) <= WIDEST_IMPLEMENTATION:
        return implementation
    return f"{implementation[: WIDEST_IMPLEMENTATION - 1]}…"
