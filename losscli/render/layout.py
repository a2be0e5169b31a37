"""Lay out tables and paragraphs as text or Markdown, and rows as CSV."""

import csv
import io
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Literal

from losscli.errors import one_line, printable
from losscli.runs.columns import MARKS
from losscli.runs.judgements import IMPOSSIBLE
from losscli.views.document import Side

Style = Literal["simple", "github"]
TEXT: Style = "simple"
MARKDOWN: Style = "github"

FORMULA = ("=", "+", "-", "@", "\t")
"""Beginnings of text that spreadsheets take for a formula."""
WIDTH = 100
INDENT = "    "
"""Indent of a note's lines after the first."""
GAP = 2
NARROWEST_CASE = 8
COMFORTABLE_CASE = 24
"""Width of a case's name for which a narrow terminal drops columns."""


def fit_case(
    headers: Sequence[str], rows: Sequence[Sequence[str]], width: int, least: Sequence[str] = ()
) -> tuple[list[str], list[list[str]]]:
    """Wrap the first column, the case, to fit a width, without columns of ``least`` if need be.

    A narrow terminal keeps part of each name on a line, a wide one only whole words.
    """
    first, cells = [row[0] for row in rows], [list(row[1:]) for row in rows]
    pieces = first if width < WIDTH else " ".join(first).split()
    comfortable = min(max(map(len, pieces), default=0), COMFORTABLE_CASE)
    others, cells = narrowed(headers[1:], cells, width - comfortable - GAP, least)
    widths = _widths(_titles(others), cells)
    room = max(width - sum(widths) - GAP * len(widths), NARROWEST_CASE)
    fitted: list[list[str]] = []
    left: list[str] = []
    for name, row in zip(first, cells, strict=True):
        if name:
            fitted += ([line, *[""] * len(others)] for line in left)
            left = textwrap.wrap(name, room)
        fitted.append([left.pop(0) if left else "", *row])
    fitted += ([line, *[""] * len(others)] for line in left)
    return [headers[0], *others], fitted


def wrap_last(headers: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[list[str]]:
    """Wrap the last cells of rows to fit a width."""
    *widths, _ = _widths(_titles(headers), rows)
    room = max(width - sum(widths) - GAP * len(widths), NARROWEST_CASE)
    broken = []
    for *cells, last in rows:
        first, *more = textwrap.wrap(last, room, break_on_hyphens=False) or [""]
        broken += [[*cells, first], *([*[""] * len(cells), line] for line in more)]
    return broken


def narrowed(
    headers: Sequence[str], rows: Sequence[Sequence[str]], width: int, least: Sequence[str]
) -> tuple[list[str], list[list[str]]]:
    """Drop the least important columns until a table fits a width."""
    kept = list(range(len(headers)))
    widths = _widths(_titles(headers), rows)
    for header in least:
        if sum(widths[i] for i in kept) + GAP * (len(kept) - 1) <= width:
            break
        kept = [index for index in kept if headers[index] != header]
    return [headers[i] for i in kept], [[row[i] for i in kept] for row in rows]


def lay_out(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    style: Style = TEXT,
    align: Sequence[Side] | None = None,
) -> str:
    """Lay out a table, empty without rows; by default numbers are aligned to the right."""
    if not rows:
        return ""
    rows = [[one_line(cell) for cell in row] for row in rows]
    import tabulate

    tabulate.MIN_PADDING = 0  # two more columns would not fit a terminal
    sides = align or [
        "right" if are_figures(column) else "left" for column in zip(*rows, strict=True)
    ]
    if style == MARKDOWN:  # which has no room for headers of several lines
        headers = [header.replace("\n", " ") for header in headers]
    table = tabulate.tabulate(
        rows, headers, tablefmt=style if headers else "plain", colalign=sides, disable_numparse=True
    )
    return "\n".join(line.rstrip() for line in table.splitlines())


def as_csv(headers: Iterable[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Return rows as CSV, without a last newline."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(headers), lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _cell(value) for key, value in row.items()} for row in rows)
    return text.getvalue().removesuffix("\n")


def _cell(value: Any) -> Any:
    """Return a cell's value; an apostrophe keeps a spreadsheet from computing text."""
    if not isinstance(value, str):
        return value
    text = printable(value)
    if text.startswith(FORMULA):
        try:
            float(text)
        except ValueError:
            return f"'{text}"
    return text


def left_out(headers: Sequence[str], width: int) -> str:
    """Name the columns that a terminal is too narrow for, if any."""
    if not headers:
        return ""
    names = ", ".join(dict.fromkeys(header.replace("\n", " ") for header in headers))
    return fill(f"not shown in {width} columns: {names}; --format json has all", width)


def fill(text: str, width: int = WIDTH) -> str:
    """Wrap a note; its first line has no further indent, so that it can be pasted."""
    own = text[: len(text) - len(text.lstrip())]
    return textwrap.fill(
        text, width, subsequent_indent=own + INDENT, break_on_hyphens=False, break_long_words=False
    )


def _titles(headers: Sequence[str]) -> list[tuple[str, ...]]:
    return list(zip_longest(*(header.split("\n") for header in headers), fillvalue=""))


def _widths(titles: Sequence[Sequence[str]], rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*titles, *rows, strict=True)]


def are_figures(cells: Sequence[str]) -> bool:
    """Tell whether a column's cells are numbers."""
    figures = [cell for cell in cells if cell not in ("", "-", IMPOSSIBLE)]
    return bool(figures) and all(cell.lstrip("".join(MARKS))[0].isdigit() for cell in figures)
