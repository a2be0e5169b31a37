"""Write a document as text for a terminal, or as Markdown."""

import re
from collections.abc import Iterable, Iterator, Sequence

from losscli.render import layout
from losscli.views.document import Document, Notes, Part, Sentence, Table, Verbatim


def text(document: Document, width: int = layout.WIDTH) -> str:
    """Return a document as text within a width."""
    return "\n\n".join(part for part in _parts(document, width) if part)


def markdown(document: Document) -> str:
    """Return a document as Markdown."""
    return "\n\n".join(part for part in _parts(document, None) if part)


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
        elif isinstance(block, Verbatim):
            yield block.text if width else f"```\n{block.text}\n```"
        elif isinstance(block, Part):
            yield f"{heading}{block.title}"
            yield from _parts(block.document, width, level + 1)
        elif isinstance(block, Table):
            if block.title:
                yield f"{heading}{block.title}"
            for table in _fitting(block, width):
                dropped += (h for h in block.headers if not block.splits and h not in table.headers)
                style = layout.TEXT if width else layout.MARKDOWN
                yield layout.lay_out(table.headers, table.rows, style, table.align)
    yield _filled(sentences, width)
    if width and dropped:
        yield layout.left_out(dropped, width)


def _filled(lines: Iterable[str], width: int | None) -> str:
    """Wrap lines; in Markdown each is a paragraph, or an item if it is indented."""
    if width is None:
        shown = (re.sub("^ +", "- ", line) for line in lines if line)
        return "\n\n".join(shown).replace("\n\n- ", "\n- ")
    return "\n".join(layout.fill(line, width) for line in lines)


def _fitting(table: Table, width: int | None) -> Iterator[Table]:
    if width is None or not table.rows:
        yield table
    elif table.splits:
        yield from _split(table, width)
    else:
        headers, rows, align = table.headers, table.rows, table.align
        if table.by_case:
            headers, rows = layout.fit_case(headers, rows, width, table.least)
        elif table.least and width < layout.WIDTH:
            headers, rows = layout.narrowed(headers, rows, width, table.least)
            align = align and align[: len(headers)]
        elif table.wraps:
            rows = layout.wrap_last(headers, rows, width)
        yield Table(headers, rows, align=align)


def _split(table: Table, width: int) -> Iterator[Table]:
    first, *columns = zip(table.headers, *table.rows, strict=True)
    part, left = [first], width - max(map(len, first))
    room = left
    for column in columns:
        wide = max(map(len, column)) + layout.GAP
        if len(part) > 1 and wide > room:
            yield _table(part)
            part, room = [first], left
        part.append(column)
        room -= wide
    yield _table(part)


def _table(columns: Iterable[Sequence[str]]) -> Table:
    headers, *rows = zip(*columns, strict=True)
    return Table(headers, rows)
