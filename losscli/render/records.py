"""Write records in any format, and a run as its results come."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from msgspec.structs import replace

from losscli.compare.configurations import headline
from losscli.compare.gate import Comparisons
from losscli.compare.history import History
from losscli.profile.record import Profile
from losscli.render.data import DATA, AnyRecord
from losscli.render.output import width, write_report
from losscli.render.text import WIDTH, markdown, text
from losscli.runs.files import is_replaceable, write_file
from losscli.runs.journal import Journal, journal_of, kept
from losscli.runs.records import Result, Run
from losscli.views import bench, compare, history, profile, self_tests, verify
from losscli.views.document import Document, Notes, Sentence


def view(record: AnyRecord, *, verbose: bool = False, columns: Sequence[str] = ()) -> Document:
    """Return the view of a record; ``columns`` are those of bench tables."""
    if isinstance(record, Comparisons):
        return compare.view(record)
    if isinstance(record, History):
        return history.view(record)
    if isinstance(record, Profile):
        return profile.view(record)
    if record.kind == "bench":
        return bench.view(record, verbose=verbose, columns=columns)
    if record.kind == "verify":
        return verify.view(record, verbose=verbose)
    if record.kind == "self-test":
        return self_tests.of_checks(record)
    return self_tests.of_timer(record)


def render(record: AnyRecord, format: str, width: int = WIDTH, **shown: Any) -> str:
    """Return a record in a format, ``md`` verbosely; :func:`view` takes ``shown``."""
    if format == "table":
        return text(view(record, **shown), width)
    if format == "md":
        return markdown(view(record, **{**shown, "verbose": True}))
    return DATA[format](record)


def write(record: AnyRecord, format: str, output: Path | None, **shown: Any) -> None:
    """Write a record to a file, or to standard output in the terminal's width."""
    write_report(render(record, format, WIDTH if output else width(), **shown), format, output)


def conclusion(record: AnyRecord) -> str:
    """Return a record's answer without tables."""
    return text(tuple(each for each in view(record) if isinstance(each, Sentence | Notes)))


WHOLE = ("json", "jsonl")
"""Formats with all that a journal has."""


class Writer:
    """A context that collects results and reports them, however it ends.

    An output's journal takes each result at once, until the report has all of its content. An old
    report stays if there is no result.
    """

    def __init__(
        self, run: Run, format: str, output: Path | None, *, saved: Path | None = None, **shown: Any
    ) -> None:
        """Begin with a run's results; ``saved``: a JSONL file too; :func:`view` takes ``shown``."""
        self.format, self.output, self.saved = format, output, saved
        self._run, self._shown = run, shown
        self.unfinished = True
        self._results = list(run.results)
        place = journal_of(output, saved)
        self._journal = Journal(run, *place) if place else None
        self._is_in_journal = True
        """Whether the journal has the last result: a full disk may cut it off."""
        if output and is_replaceable(output):
            self.output = output.resolve()

    def __enter__(self) -> Self:
        return self

    @property
    def run(self) -> Run:
        """The run with its results so far and their headline."""
        found = tuple(self._results)
        run = replace(self._run, results=found, result_count=len(found), unfinished=self.unfinished)
        return replace(run, headline=headline(run))

    def add(self, result: Result) -> None:
        """Keep a result."""
        self._results.append(result)
        if self._journal:
            self._is_in_journal = False
            self._journal.add(result)
            self._is_in_journal = True

    def __exit__(self, *_: object) -> None:
        journal = self._journal.path if self._journal else None
        if self._journal:
            self._journal.close()
        if self._results:
            where = journal if self._is_in_journal else None
            with kept(self._run.kind, lambda: render(self.run, "jsonl"), where):
                # JSONL first: the report can be rendered from it.
                if self.saved:
                    write_file(self.saved, render(self.run, "jsonl"))
                write(self.run, self.format, self.output, **self._shown)
        if journal and (self.format in WHOLE or self.saved or not self._results):
            journal.unlink(missing_ok=True)
