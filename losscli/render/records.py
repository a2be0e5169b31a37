"""Writes a record in any format: its view as text or Markdown, or its data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from losscli.compare.gate import Comparisons
from losscli.compare.history import History
from losscli.profile.record import Profile
from losscli.render.data import DATA, AnyRecord
from losscli.render.layout import WIDTH
from losscli.render.output import width, write_report
from losscli.render.text import markdown, text
from losscli.runs.records import Kind
from losscli.views import bench, compare, history, profile, self_tests, verify
from losscli.views.document import Document, without_tables

_VIEWS: dict[Kind, Callable[..., Document]] = {
    "bench": bench.view,
    "verify": verify.view,
    "self-test": self_tests.of_checks,
    "timer-test": self_tests.of_timer,
}


def view(record: AnyRecord, *, verbose: bool = False, columns: Sequence[str] = ()) -> Document:
    """Return the view of a record; ``columns`` are those of the tables of a bench."""
    if isinstance(record, Comparisons):
        return compare.view(record, verbose=verbose)
    if isinstance(record, History):
        return history.view(record, verbose=verbose)
    if isinstance(record, Profile):
        return profile.view(record, verbose=verbose)
    of_kind = _VIEWS[record.kind]
    if columns and record.kind == "bench":
        of_kind = partial(bench.view, columns=columns)
    return of_kind(record, verbose=verbose)


def render(
    record: AnyRecord,
    format: str,
    width: int = WIDTH,
    columns: Sequence[str] = (),
    *,
    verbose: bool = False,
) -> str:
    """Return a record as ``table``, ``md``, ``csv``, ``json`` or ``jsonl``. Markdown is verbose."""
    if format == "table":
        return text(view(record, verbose=verbose, columns=columns), width)
    if format == "md":
        return markdown(view(record, verbose=True, columns=columns))
    return DATA[format](record)


def write(
    record: AnyRecord,
    format: str,
    output: Path | None,
    columns: Sequence[str] = (),
    *,
    verbose: bool = False,
) -> None:
    """Write a record to its output, or to standard output in the terminal's width."""
    wide = WIDTH if output else width()
    write_report(render(record, format, wide, columns, verbose=verbose), format, output)


def conclusion(record: AnyRecord) -> str:
    """Return what a record comes to, without its tables."""
    return text(without_tables(view(record)))
