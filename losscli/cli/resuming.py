"""``losscli bench --resume FILE``: go on with a run that was killed or interrupted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click

from losscli.axes import HOST
from losscli.bench.plan import Task, digest, remaining
from losscli.errors import UsageError
from losscli.machine.differences import differences, parts_ways
from losscli.report.journal import journal_path
from losscli.results import BenchResult, Run
from losscli.saved import find_run, is_there, runs_directory


@dataclass(frozen=True)
class Resumed:
    """A run that goes on."""

    path: Path
    """What it was read from."""
    run: Run
    """As it would begin now, with the results that it has already."""
    tasks: list[Task]
    """What is left to do."""


def resume(name: str, run: Run, tasks: Sequence[Task]) -> Resumed:
    """Return what is left of a run.

    Args:
        name: a report or its journal, or a run that was to be saved under this name.
        run: the run that this command would begin.
        tasks: all that it asks for.

    Raises:
        UsageError: there is no such run, or this command would not measure the same.
    """
    from losscli.result_file import read_run

    path = _find(name)
    before = read_run(path, "bench")
    if before.plan != digest(tasks):
        raise UsageError(
            f"{path} is of another config: it was begun by `{' '.join(before.command)}`. Go on "
            "with the same config and options."
        )
    host = any(task.mode == HOST for task in tasks)
    for difference in differences(before.environment, run.environment, host=host):
        if parts_ways(difference):
            raise UsageError(
                f"{path} cannot go on here, for it was begun with another {difference}, and a run "
                "is of one machine and one build. Go back to that, or begin anew with another -o "
                "or --save."
            )
        click.echo(f"losscli: since the run was begun, another {difference}", err=True)
    results = [result for result in before.results if isinstance(result, BenchResult)]
    left, kept = remaining(tasks, results)
    done = sum(map(len, tasks)) - sum(map(len, left))
    click.echo(f"losscli: {done} of {sum(map(len, tasks))} results are there already", err=True)
    return Resumed(path, replace(run, created=before.created, results=tuple(kept)), left)


def _find(name: str) -> Path:
    """Return the file to go on with; a journal, where there is one, knows more than a report."""
    for candidate in (Path(name), runs_directory() / f"{name}.jsonl"):
        if name and is_there(journal_path(candidate)):
            return journal_path(candidate)
    try:
        return find_run(name)
    except UsageError as error:
        raise UsageError(
            f"{error} One that was killed before it was saved is known by its -o, if it had one: "
            "--resume PATH."
        ) from None
