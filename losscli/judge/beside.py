"""Find out whether a candidate slows what is timed next to it.

A kernel left on the GPU, a thread or a process may slow the reference but not the candidate, whose
ratio is then too good. So the reference is also timed without the candidate. A GPU switches between
processes every few milliseconds, which hardly slows short calls.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from losscli.bench.plan import Task
from losscli.cases.axes import PassName
from losscli.reasons import Code
from losscli.runs.measurements import Seconds
from losscli.runs.records import BenchResult

ROUNDS = 3
"""Timings with and without the candidate that must all differ: other programs slow only some."""
TOLERANCE = {"cpu": 2.0, "cuda": 1.5}
"""The largest ratio of the median with the candidate to the p80 without it. On a CPU cores wake up
for each process: 1.3 for PyTorch's own. On an H200 it was 1.00 for PyTorch's mean squared error of
16384x16384."""
SLACK = 5e-6
"""Seconds that are always allowed: after another process a GPU reloads its address tables."""
CLEARLY_SLOWER = 0.8
"""A ratio whose interval is below this is slower, however few the samples."""
NO_ROOM = (Code.NO_ROOM, Code.OUT_OF_MEMORY)
SAMPLED_SECONDS = 0.2
"""How long samples are taken: only a large difference counts."""

Run = Callable[[Task], Iterable[BenchResult]]
"""Times a task, after ending the processes of other files."""
Times = dict[PassName, Seconds]
Known = dict[tuple[str, PassName], float]
"""The p80 of a reference without a candidate, by case, device and pass."""


def findings(
    run: Run,
    task: Task,
    results: Sequence[BenchResult],
    candidate: str,
    reference: str,
    known: Known,
) -> Iterator[tuple[Code, str, PassName]]:
    """Yield code, text and pass of each finding; ``known`` is reused for the next task."""
    own = {r.pass_: r.seconds for r in results if r.implementation == candidate and r.seconds}
    other = {r.pass_: r for r in results if r.implementation == reference and r.pass_ in own}
    beside = {pass_: result.seconds for pass_, result in other.items() if result.seconds}
    for pass_, factor in slowed(run, task, candidate, reference, beside, known).items():
        text = f"the reference takes {factor:.2f} times as long next to its process as without it"
        yield Code.SLOWS_OTHERS, text, pass_
    crowded = [pass_ for pass_, result in other.items() if result.code in NO_ROOM]
    if crowded:
        for pass_, alone in times(run, task, crowded, reference).items():
            factor = own[pass_].median / alone.median
            if factor > 1 / CLEARLY_SLOWER:
                text = f"{factor:.2f} times the time of the reference; memory did not hold both"
                yield Code.SLOWER, text, pass_


def times(
    run: Run, task: Task, passes: Iterable[PassName], reference: str, *candidate: str
) -> Times:
    """Time a reference in some passes of a task, alone or next to a candidate."""
    timing = replace(task.timing, min_time=SAMPLED_SECONDS, max_time=SAMPLED_SECONDS)
    names = (*candidate, reference)
    short = replace(
        task, passes=dict.fromkeys(passes, names), timing=timing, limited=False, peaks=False
    )
    return {
        result.pass_: result.seconds
        for result in run(short)
        if result.implementation == reference and result.seconds
    }


def slowed(
    run: Run, task: Task, candidate: str, reference: str, beside: Times, known: Known
) -> dict[PassName, float]:
    """Return the passes in which a candidate slows the reference, and by which factor."""
    case = f"{task.case.name} {task.case.device}"
    most = TOLERANCE[task.case.device.partition(":")[0]]

    def too_slow(beside: Times) -> dict[PassName, float]:
        without = {pass_: known.get((case, pass_), 0.0) for pass_ in beside}
        return {
            pass_: each.median / without[pass_] if without[pass_] else math.inf
            for pass_, each in beside.items()
            if each.median > most * without[pass_] + SLACK
        }

    found = too_slow(beside)
    for number in range(ROUNDS):
        if not found:
            break
        if number:
            beside = times(run, task, found, reference, candidate)
        alone = times(run, task, found, reference)
        known.update({(case, pass_): each.p80 for pass_, each in alone.items()})
        found = too_slow({pass_: beside[pass_] for pass_ in alone if pass_ in beside})
    return found
