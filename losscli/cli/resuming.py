"""``losscli bench --resume FILE``: continues a run that was killed or interrupted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from losscli.axes import HOST
from losscli.bench.plan import Task, remaining
from losscli.notes import note
from losscli.runs.records import BenchResult, Run


@dataclass(frozen=True)
class Resumed:
    """A resumed run."""

    path: Path
    """The file that the run was read from."""
    run: Run
    """The run as it would begin now, with the finished results."""
    tasks: list[Task]
    """The unfinished tasks."""


def resume(name: str, run: Run, tasks: Sequence[Task]) -> Resumed:
    """Return the unfinished part of a run.

    Args:
        name: a report or its journal, or a run that was to be saved under this name.
        run: the run that this command would begin.
        tasks: all that it asks for.

    Raises:
        UsageError: there is no such run, or this command would not measure the same.
    """
    from losscli.runs.resume import find_unfinished, read_unfinished

    path = find_unfinished(name)
    host = any(task.mode == HOST for task in tasks)
    before, unlike = read_unfinished(path, run, host=host)
    for difference in unlike:
        note(f"changed since the run began: {difference}")
    results = [result for result in before.results if isinstance(result, BenchResult)]
    left, kept = remaining(tasks, results)
    done = sum(map(len, tasks)) - sum(map(len, left))
    note(f"{done} of {sum(map(len, tasks))} results are already measured")
    return Resumed(path, replace(run, created=before.created, results=tuple(kept)), left)
