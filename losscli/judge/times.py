"""Time a candidate and what it is compared with, and find out whose kernels ran.

A kernel left on the GPU, a thread or a process may slow the reference but not the candidate, whose
ratio is then too good. So the reference is also timed without the candidate. A GPU switches between
processes every few milliseconds, which hardly slows short calls.
"""

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache

import torch

from losscli.bench.plan import Task
from losscli.bench.processes import Processes
from losscli.bench.runner import Runner
from losscli.cases.axes import FORWARD, FORWARD_BACKWARD, PassName
from losscli.implementations.errors import SubjectError
from losscli.implementations.sandbox.timed_requests import OWN, TRITON, Time, WhatRan
from losscli.implementations.sandbox.worker_requests import TuningSeconds
from losscli.implementations.subject import RemoteSubject, workers
from losscli.judge.against_model import AnyModel
from losscli.judge.judgement import Judgement
from losscli.judge.verdict_parts import REFERENCE, Speed
from losscli.reasons import Code
from losscli.runs.measurements import Seconds, Speedup
from losscli.runs.records import FAILED, SKIPPED, BenchResult

OWN_SHARE = {"cpu": 0.3, "cuda": 0.05}
"""The least time share of a file's own kernel: on a CPU it includes the interpreter."""
ROUNDS = 6
"""Timings with and without the candidate that must all differ: other programs slow only some."""
TOLERANCE = {"cpu": 2.0, "cuda": 1.5}
"""The largest ratio of the median with the candidate to the p80 without it. On a CPU cores wake up
for each process: 1.3 for PyTorch's own. On an H200 it was 1.00 for PyTorch's mean squared error of
16384x16384."""
CLEARLY_SLOWER = 0.8
"""A ratio whose interval is below this is slower, however few the samples."""
NO_ROOM = (Code.INSUFFICIENT_MEMORY, Code.OUT_OF_MEMORY)
Run = Callable[[Task], Iterable[BenchResult]]
"""Times a task, after ending the processes of other files."""
Times = dict[PassName, Seconds]
Known = dict[tuple[str, PassName], float]
"""The p80 of a reference without a candidate, by case, device and pass."""
_runner = cache(Runner)
"""The runner of quick timings on a device, which measures the memory limits once."""
_known: Known = {}


def take_tuning(on: Judgement) -> None:
    """Record how long the candidate has tuned kernels so far."""
    for worker in workers.known(on.file):
        with contextlib.suppress(SubjectError):  # it has died
            if tuned := worker.ask(TuningSeconds(), case=None):
                on.draft.seconds["tuning"] = round(tuned, 3)


def who_computed(on: Judgement) -> None:
    """Record whose operators and kernels run in a call, and whether one is the candidate's."""
    against, draft = on.against, on.draft
    case = against.tasks()[0].case
    try:
        subject = RemoteSubject.bind(on.implementation, case)
        operands = on.problem(case).operands
        pass_ = FORWARD_BACKWARD if against.trains else FORWARD
        subject.send(Time(pass_, operands, evicts=False, captured=False))
        count, shares = subject.send(WhatRan())
    except SubjectError as error:
        if on.job.own_kernel:
            draft.notes.append(f"it is unknown which kernels ran: {error}")
        return
    own = sum(share for who, share in shares.items() if who in (OWN, TRITON))
    what = "kernels" if on.device != "cpu" else "PyTorch operators"
    named = ", ".join(f"{share:.0%} {who}" for who, share in sorted(shares.items()))
    draft.notes.append(f"ran {count} {what}; time: {named}")
    if own >= OWN_SHARE[on.device.partition(":")[0]]:
        return
    if on.file.parsed.compiled:
        draft.notes.append("it builds a kernel that never ran")
    if on.job.own_kernel:
        draft.add(Code.NO_OWN_KERNEL, f"{1 - own:.0%} of the time is in PyTorch", case=case.name)


def time_beside(on: Judgement) -> None:
    """Time the candidate and what it is compared with."""
    against, job = on.against, on.job
    known_loss = not isinstance(against, AnyModel)
    several = known_loss and not job.quick
    timed: list[tuple[Task, list[BenchResult]]] = []
    with Processes(on.device, torch.get_num_threads()) as processes:
        run: Run = processes.run if several else _runner(on.device).run
        for task in against.tasks():
            on.check_time()
            results = list(run(task)) if several else _confirmed(on, run, task)
            timed.append((task, results))
            for result in results:
                _take_time(on, result)
        take_tuning(on)
        if told := busy_note(on.device, [each for _, results in timed for each in results]):
            on.draft.notes.append(told)
        known = _known if known_loss and not several else {}
        for task, results in timed:
            about = task, results, job.file, against.beside, known
            for code, text, pass_ in findings(run, *about):
                on.draft.add(code, text, case=f"{task.case.name}, {pass_}")


def busy_note(device: str, results: Iterable[BenchResult]) -> str:
    """Return a note on other programs that used much of the device; empty if none did."""
    most = max((each.conditions.get("others") or 0.0 for each in results), default=0.0)
    if most <= 0.25:  # slows all implementations alike, for their samples are interleaved
        return ""
    what = "cores" if device == "cpu" else "GPU"
    told = f"other programs used up to {most:.0%} of the {what} while times were measured"
    return f"{told}: judge the file again on an idle machine"


def _confirmed(on: Judgement, run: Run, task: Task) -> list[BenchResult]:
    """Time it in one process; again where it is slower, since another program may have run."""
    results = list(run(task))
    slower = [r.seconds.median for r in results if _slower(on, r) and r.seconds]
    # No other program explains that so long a call is slower, and timing it again takes long.
    if not slower or max(slower) > 0.05:
        return results
    own = [r for r in run(task) if r.implementation == on.job.file]
    again = {r.pass_: r for r in own if r.seconds and not _slower(on, r)}
    return [again.get(r.pass_, r) if _slower(on, r) else r for r in results]


def _slower(on: Judgement, result: BenchResult) -> dict[str, float]:
    if result.implementation != on.job.file:
        return {}
    compared = ((o, r) for o, r in _ratios(on, result).items() if o in on.against.compared)
    return {o: r.value for o, r in compared if r.verdict == "slower" or r.high < CLEARLY_SLOWER}


def _ratios(on: Judgement, result: BenchResult) -> dict[str, Speedup]:
    """Return the ratios to others; the timed reference is named REFERENCE."""
    reference = on.against.beside
    return {REFERENCE if n == reference else n: ratio for n, ratio in result.ratios.items()}


def _take_time(on: Judgement, result: BenchResult) -> None:
    draft, against = on.draft, on.against
    name = f"{result.case.name}, {result.pass_}"
    if result.implementation != on.job.file:
        fails = result.status == FAILED and result.code != Code.TIMING_TAMPERING
        if fails and isinstance(against, AnyModel):
            draft.end(Code.BAD_REFERENCE, f"the reference {result.reason}", case=name)
        return
    if result.status == FAILED:
        draft.add(result.code or Code.WRONG, result.reason, case=name)
        return
    if result.status == SKIPPED and result.code != Code.NOT_APPLICABLE:
        code: Code = Code.INSUFFICIENT_MEMORY if result.code in NO_ROOM else Code.ERROR
        draft.add(code, result.reason, case=name)
    if not result.seconds:
        return
    if result.impossible:
        draft.add(Code.IMPOSSIBLE, result.reason, case=name)
    ratios = {other: (r.value, r.low, r.high) for other, r in _ratios(on, result).items()}
    measured = result.seconds.median, ratios, result.limit_share, result.peak_extra_bytes
    draft.speed.append(Speed(result.case.name, result.pass_, *measured))
    for other, ratio in _slower(on, result).items():
        draft.add(Code.SLOWER, f"{1 / ratio:.2f} times the time of {other}", case=name)


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
    for pass_, factor in _slowed_passes(run, task, candidate, reference, beside, known).items():
        text = f"the reference takes {factor:.2f} times as long next to its process as without it"
        yield Code.INTERFERENCE, text, pass_
    crowded = [pass_ for pass_, result in other.items() if result.code in NO_ROOM]
    if crowded:
        for pass_, alone in _seconds_of_reference(run, task, crowded, reference).items():
            factor = own[pass_].median / alone.median
            if factor > 1 / CLEARLY_SLOWER:
                text = f"{factor:.2f} times the time of the reference; memory did not hold both"
                yield Code.SLOWER, text, pass_


def _seconds_of_reference(
    run: Run, task: Task, passes: Iterable[PassName], reference: str, *candidate: str
) -> Times:
    """Time a reference in some passes of a task, alone or next to a candidate."""
    timing = replace(task.timing, min_time=0.2, max_time=0.2)  # only large differences count
    asked = dict.fromkeys(passes, (*candidate, reference))
    results = run(replace(task, passes=asked, timing=timing, limited=False, peaks=False))
    return {r.pass_: r.seconds for r in results if r.implementation == reference and r.seconds}


def _slowed_passes(
    run: Run, task: Task, candidate: str, reference: str, beside: Times, known: Known
) -> dict[PassName, float]:
    """Return the passes in which a candidate slows the reference, and by which factor."""
    case = f"{task.case.name} {task.case.device}"
    most = TOLERANCE[task.case.device.partition(":")[0]]

    def too_slow(beside: Times) -> dict[PassName, float]:
        without = {pass_: known.get((case, pass_), 0.0) for pass_ in beside}
        # After another process a GPU reloads its address tables, which takes microseconds.
        return {
            pass_: each.median / without[pass_] if without[pass_] else math.inf
            for pass_, each in beside.items()
            if each.median > most * without[pass_] + 5e-6
        }

    found = too_slow(beside)
    for number in range(ROUNDS):
        if not found:
            break
        if number:
            beside = _seconds_of_reference(run, task, found, reference, candidate)
        alone = _seconds_of_reference(run, task, found, reference)
        known.update({(case, pass_): each.p80 for pass_, each in alone.items()})
        found = too_slow({pass_: beside[pass_] for pass_ in alone if pass_ in beside})
    return found
