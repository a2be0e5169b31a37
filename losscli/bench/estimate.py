"""How long tasks may take: for --dry-run, and for progress before the first is finished."""

from __future__ import annotations

from collections.abc import Sequence

from losscli.bench.plan import Task

START_SECONDS = {"cpu": 2.0, "cuda": 4.0}
"""The time to start a process: it imports torch, and on a GPU makes a context."""
SECONDS_PER_ELEMENT = {"cpu": 80e-9, "cuda": 1e-9}
"""The time to make inputs, judge an implementation against the oracle and warm up, in each process
and pass; measured on two cores. That of a GPU is a guess."""
SAMPLED = 0.7
"""The part that is used of the longest time for sampling: not every case needs it all."""


def seconds_of(task: Task) -> float:
    """Return how many seconds a task may take."""
    kind = task.case.device.partition(":")[0]
    processes = task.timing.processes or 1
    checked = len(task) * task.case.elements * SECONDS_PER_ELEMENT[kind] * processes
    sampled = SAMPLED * max(task.timing.max_time, task.timing.min_time)
    return checked + len(task.passes) * sampled


def seconds_of_all(tasks: Sequence[Task]) -> float:
    """Return how many seconds tasks may take, with the start of their processes."""
    if not tasks:
        return 0.0
    kind = tasks[0].case.device.partition(":")[0]
    processes = max(task.timing.processes or 1 for task in tasks)
    return START_SECONDS[kind] * processes + sum(map(seconds_of, tasks))
