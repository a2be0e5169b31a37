"""Finds an interrupted run and checks that it can be resumed here."""

from __future__ import annotations

from pathlib import Path

from losscli.errors import UsageError
from losscli.machine.differences import Difference, differences, parts_ways
from losscli.runs.holding import refuse_held
from losscli.runs.journal import journal_path, output_of
from losscli.runs.reading import read_run
from losscli.runs.records import Run
from losscli.runs.saved import find_run, is_there, runs_directory


def find_unfinished(name: str) -> Path:
    """Return the file to resume from: the journal, which has more results, or the report."""
    path = _journal_or_report(name)
    refuse_held(output_of(path).resolve())
    return path


def _journal_or_report(name: str) -> Path:
    for candidate in (Path(name), runs_directory() / f"{name}.jsonl"):
        if name and is_there(journal_path(candidate)):
            return journal_path(candidate)
    try:
        return find_run(name)
    except UsageError as error:
        raise UsageError(
            f"{error} A run that was killed before it was saved is found by the path of its -o: "
            "--resume PATH."
        ) from None


def read_unfinished(path: Path, run: Run, *, host: bool) -> tuple[Run, list[Difference]]:
    """Return an interrupted bench run, and how the machine changed since.

    ``run`` would start now; UsageError if it would not measure the same.
    """
    before = read_run(path, "bench")
    if before.plan != run.plan:
        raise UsageError(
            f"{path} has another config: it was begun by `{' '.join(before.command)}`. Resume it "
            "with the same config and options."
        )
    if before.parts != run.parts:
        had, asked = (
            f"--part {', '.join(r.parts)}" if r.parts else "no --part" for r in (before, run)
        )
        raise UsageError(
            f"{path} was begun with {had}, and this run has {asked}. Resume it as it was."
        )
    unlike = differences(before.environment, run.environment, host=host)
    for difference in unlike:
        if parts_ways(difference):
            raise UsageError(
                f"{path} cannot be resumed here: different {difference}. One machine and one build "
                "measure a whole run. Resume it with those, or start a new run with another -o or "
                "--save."
            )
    return before, unlike
