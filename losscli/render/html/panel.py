"""What a panel consists of: words, plots, tables. Plain data, which a template turns into HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from losscli.render.html.svg import Plot

_URGENT = 8
"""Most notes that are shown at once."""
State = Literal["", "good", "warn", "bad", "off"]
"""How a cell or a row is coloured; the words say the same."""


@dataclass(frozen=True)
class Cell:
    """The text of a cell with more than a text: a state, or the place that it leads to."""

    text: str
    state: State = ""
    link: str = ""
    """The id of the element of the page that it leads to."""
    picture: str = ""
    """Markup beside the text, which says nothing that the row does not say."""

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Row:
    """The cells of a row; ``style`` is the colour of its implementation, by which it is hidden."""

    cells: tuple[str | Cell, ...]
    style: int | None = None


@dataclass(frozen=True)
class Table:
    """A table of figures, which a script sorts and filters."""

    caption: str
    headers: tuple[str, ...]
    rows: tuple[Row, ...]
    words: int = 1
    """Number of the columns from the left that hold words; the others are aligned to the right."""
    upright: bool = False
    """Whether headers are written from bottom to top, for many narrow columns."""


@dataclass(frozen=True)
class Group:
    """Plots that are shown side by side, behind a title where there are many."""

    title: str
    plots: tuple[Plot, ...]
    small: bool = False


@dataclass(frozen=True)
class Note:
    """A failure or a remark: its words, and lines that are to be pasted or read as they are."""

    title: str
    text: str = ""
    state: State = ""
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Part:
    """A section of one case: what stands in its title, its figures and its plot."""

    key: str
    title: str
    summary: str
    table: Table
    notes: tuple[str, ...] = ()
    state: State = ""


@dataclass(frozen=True)
class Panel:
    """A section of the page."""

    name: str
    title: str
    lead: str = ""
    """What the panel shows, and how to read it."""
    plots: tuple[Plot, ...] = ()
    groups: tuple[Group, ...] = ()
    """Further plots, closed at first."""
    tables: tuple[Table, ...] = ()
    """Shown at once."""
    behind: tuple[Table, ...] = ()
    """The figures of the plots, closed at first."""
    notes: tuple[Note, ...] = ()
    parts: tuple[Part, ...] = ()
    sentence: str = ""
    """The verdict."""
    state: State = ""
    """The state of the verdict."""
    missing: str = ""
    """Why there is nothing to show."""

    @property
    def urgent(self) -> tuple[Note, ...]:
        """The first failures and warnings, which are shown at once."""
        return tuple(each for each in self.notes if each.state in ("bad", "warn"))[:_URGENT]

    @property
    def further(self) -> tuple[Note, ...]:
        """The other notes, closed at first."""
        return tuple(each for each in self.notes if each not in self.urgent)


def telling_table(
    caption: str, headers: Sequence[str], rows: Sequence[Row], *, keep: int, words: int = 2
) -> Table:
    """Return a table of the first ``keep`` columns and those in which a row says anything."""
    shown = [
        index
        for index in range(len(headers))
        if index < keep or any(str(row.cells[index]) not in ("", "-") for row in rows)
    ]
    kept = tuple(Row(tuple(row.cells[i] for i in shown), row.style) for row in rows)
    return Table(caption, tuple(headers[index] for index in shown), kept, words)
