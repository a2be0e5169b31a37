"""Write a document as text for a terminal, or as Markdown; lay out its tables and paragraphs."""

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest

from losscli.errors import one_line
from losscli.runs.columns import MARKS
from losscli.runs.judgements import IMPOSSIBLE
from losscli.views.document import Document, Notes, Part, Sentence, Side, Table

TEXT, MARKDOWN = "simple", "github"
"""How tabulate names them."""
WIDTH = 100
INDENT = "    "
"""Indent of a note's lines after the first."""
GAP = 2
NARROWEST_CASE = 8


def text(document: Document, width: int | None = WIDTH) -> str:
    """Return a document as text within a width, or as Markdown without one."""
    return "\n\n".join(part for part in _parts(document, width) if part)


def markdown(document: Document) -> str:
    """Return a document as Markdown."""
    return text(document, None)


def _parts(document: Document, width: int | None, level: int = 3) -> Iterator[str]:
    dropped: list[str] = []
    heading = "" if width else f"{'#' * level} "
    sentences: list[str] = []
    for block in document:
        if isinstance(block, Sentence):
            sentences.append(block.text)
            continue
        yield _filled(sentences, width)
        sentences = []
        if isinstance(block, Notes):
            yield _filled(block.lines, width)
        elif isinstance(block, Part):
            yield f"{heading}{block.title}"
            yield from _parts(block.document, width, level + 1)
        elif isinstance(block, Table):
            for table in _fitting(block, width):
                dropped += (h for h in block.headers if not block.splits and h not in table.headers)
                style = TEXT if width else MARKDOWN
                yield lay_out(table.headers, table.rows, style, table.align)
    yield _filled(sentences, width)
    if width and dropped:
        yield left_out(dropped, width)


def _filled(lines: Iterable[str], width: int | None) -> str:
    """Wrap lines; in Markdown each is a paragraph, or an item if it is indented."""
    if width is None:
        shown = (re.sub("^ +", "- ", line) for line in lines if line)
        return "\n\n".join(shown).replace("\n\n- ", "\n- ")
    return "\n".join(fill(line, width) for line in lines)


def _fitting(table: Table, width: int | None) -> Iterator[Table]:
    if width is None or not table.rows:
        yield table
    elif table.splits:
        for columns in _split(table, width):
            titles, *cells = zip(*columns, strict=True)
            yield Table(titles, cells)
    else:
        headers, rows, align = table.headers, table.rows, table.align
        if table.by_case:
            headers, rows = fit_case(headers, rows, width, table.least)
        elif table.least and width < WIDTH:
            headers, rows = narrowed(headers, rows, width, table.least)
            align = align and align[: len(headers)]
        elif table.wraps:
            rows = wrap_last(headers, rows, width)
        yield Table(headers, rows, align=align)


def _split(table: Table, width: int) -> Iterator[list[tuple[str, ...]]]:
    """Yield the columns, header first, of each table that fits a width."""
    first, *columns = zip(table.headers, *table.rows, strict=True)
    part, left = [first], width - max(map(len, first))
    room = left
    for column in columns:
        wide = max(map(len, column)) + GAP
        if len(part) > 1 and wide > room:
            yield part
            part, room = [first], left
        part.append(column)
        room -= wide
    yield part


def fit_case(
    headers: Sequence[str], rows: Sequence[Sequence[str]], width: int, least: Sequence[str]
) -> tuple[list[str], list[list[str]]]:
    """Wrap the first column, the case, to fit a width, without columns of ``least`` if need be."""
    first, cells = [row[0] for row in rows], [list(row[1:]) for row in rows]
    # A narrow terminal keeps part of each name on a line, a wide one only whole words.
    pieces = first if width < WIDTH else " ".join(first).split()
    comfortable = min(max(map(len, pieces), default=0), 24)
    others, cells = narrowed(headers[1:], cells, width - comfortable - GAP, least)
    widths = _widths(others, cells)
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
    *widths, _ = _widths(headers, rows)
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
    widths = _widths(headers, rows)
    for header in least:
        if sum(widths[i] for i in kept) + GAP * (len(kept) - 1) <= width:
            break
        kept = [index for index in kept if headers[index] != header]
    return [headers[i] for i in kept], [[row[i] for i in kept] for row in rows]


def lay_out(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    style: str = TEXT,
    align: Sequence[Side] | None = None,
) -> str:
    """Lay out a table, empty without rows; by default numbers are aligned to the right."""
    if not rows:
        return ""
    rows = [[one_line(cell) for cell in row] for row in rows]
    import tabulate

    tabulate.MIN_PADDING = 0  # two more columns would not fit a terminal
    sides = align or ["right" if are_figures(each) else "left" for each in zip(*rows, strict=True)]
    if style == MARKDOWN:  # which has no room for headers of several lines
        headers = [header.replace("\n", " ") for header in headers]
    style = style if headers else "plain"
    table = tabulate.tabulate(rows, headers, style, colalign=sides, disable_numparse=True)
    return "\n".join(line.rstrip() for line in table.splitlines())


def left_out(headers: Sequence[str], width: int) -> str:
    """Name the columns that a terminal is too narrow for."""
    names = ", ".join(dict.fromkeys(header.replace("\n", " ") for header in headers))
    return fill(f"not shown in {width} columns: {names}; --format json has all", width)


def fill(text: str, width: int = WIDTH) -> str:
    """Wrap a note; its first line has no further indent, so that it can be pasted."""
    own = text[: len(text) - len(text.lstrip())]
    return textwrap.fill(
        text, width, subsequent_indent=own + INDENT, break_on_hyphens=False, break_long_words=False
    )


def _widths(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    titles = zip_longest(*(header.split("\n") for header in headers), fillvalue="")
    return [max(map(len, column)) for column in zip(*titles, *rows, strict=True)]


def are_figures(cells: Sequence[str]) -> bool:
    """Tell whether a column's cells are numbers."""
    figures = [cell for cell in cells if cell not in ("", "-", IMPOSSIBLE)]
    return bool(figures) and all(cell.lstrip("".join(MARKS))[:1].isdigit() for cell in figures)
