"""Times a candidate beside others, and says whose kernels ran."""

import contextlib
from functools import cache

import torch

from losscli.bench.plan import Task
from losscli.bench.processes import Processes
from losscli.bench.runner import Runner
from losscli.cases.axes import FORWARD, FORWARD_BACKWARD
from losscli.implementations import remote
from losscli.implementations.errors import SubjectError
from losscli.implementations.remote import RemoteSubject
from losscli.implementations.sandbox.owners import OWN, TRITON
from losscli.implementations.sandbox.worker_requests import Time, TuningSeconds, WhatRan
from losscli.judge import beside
from losscli.judge.against_model import AnyModel
from losscli.judge.judgement import Judgement
from losscli.judge.verdict_parts import REFERENCE, Speed
from losscli.reasons import Code
from losscli.runs.measurements import Speedup
from losscli.runs.records import FAILED, SKIPPED, BenchResult

OWN_SHARE = {"cpu": 0.3, "cuda": 0.05}
"""The least share of a file's own kernel: on a CPU the interpreter's time is in it."""
SURELY_SLOW_SECONDS = 0.05
"""The time of a call from which on no other program explains it, and timing again takes long."""
_runner = cache(Runner)
"""The runner of quick timings on a device, which measures the limits of the memory once."""
_known: beside.Known = {}
"""Of the losses' references, in this process."""


def take_tuning(on: Judgement) -> None:
    """Take how long it has tuned kernels until now."""
    for worker in remote.workers.known(on.file):
        with contextlib.suppress(SubjectError):  # it has died
            if tuned := worker.ask(TuningSeconds(), case=None):
                on.draft.seconds["tuning"] = round(tuned, 3)


def who_computed(on: Judgement) -> None:
    """Say whose operators and kernels run in a call, and whether a kernel of its own does."""
    against, draft = on.against, on.draft
    trains = bool(draft.trains)
    case = against.tasks(trains=trains)[0].case
    try:
        subject = RemoteSubject.bind(on.implementation, case)
        operands = on.problem(case).operands
        pass_ = FORWARD_BACKWARD if trains else FORWARD
        subject.send(Time(pass_, operands, evicts=False, captured=False))
        found = subject.send(WhatRan())
    except SubjectError as error:
        if on.job.own_kernel:
            draft.notes.append(f"it is unknown which kernels ran: {error}")
        return
    own = sum(share for who, share in found.shares.items() if who in (OWN, TRITON))
    what = "kernels" if on.device != "cpu" else "PyTorch operators"
    named = ", ".join(f"{share:.0%} {who}" for who, share in sorted(found.shares.items()))
    draft.notes.append(f"ran {found.count} {what}; time: {named}")
    if own >= OWN_SHARE[on.device.partition(":")[0]]:
        return
    if on.file.parsed.compiled:
        draft.notes.append("it builds a kernel that never ran")
    if on.job.own_kernel:
        draft.add(
            Code.NO_OWN_KERNEL,
            f"{1 - own:.0%} of the time is in PyTorch's own kernels",
            case=case.name,
        )


def time_beside(on: Judgement) -> None:
    """Time it beside others."""
    against, job = on.against, on.job
    several = against.in_processes and not job.quick
    timed: list[tuple[Task, list[BenchResult]]] = []
    with Processes(on.device, torch.get_num_threads()) as processes:
        run: beside.Run = processes.run if several else _runner(on.device).run
        for task in against.tasks(trains=bool(on.draft.trains)):
            on.check_time()
            results = list(run(task)) if several else _confirmed(on, run, task)
            timed.append((task, results))
            for result in results:
                _take_time(on, result)
        take_tuning(on)
        known = {} if several or isinstance(against, AnyModel) else _known
        for task, results in timed:
            about = task, results, job.file, against.beside, known
            for code, text, pass_ in beside.findings(run, *about):
                on.draft.add(code, text, case=f"{task.case.name}, {pass_}")


def _confirmed(on: Judgement, run: beside.Run, task: Task) -> list[BenchResult]:
    """Time it in one process; again where it is slower, for another program may have run."""
    results = list(run(task))
    slower = [r.seconds.median for r in results if _slower(on, r) and r.seconds]
    if not slower or max(slower) > SURELY_SLOW_SECONDS:
        return results
    own = [r for r in run(task) if r.implementation == on.job.file]
    again = {r.pass_: r for r in own if r.seconds and not _slower(on, r)}
    return [again.get(r.pass_, r) if _slower(on, r) else r for r in results]


def _slower(on: Judgement, result: BenchResult) -> dict[str, float]:
    if result.implementation != on.job.file:
        return {}
    return {
        other: ratio.value
        for other, ratio in _ratios(on, result).items()
        if other in on.against.compared
        and (ratio.verdict == "slower" or ratio.high < beside.CLEARLY_SLOWER)
    }


def _ratios(on: Judgement, result: BenchResult) -> dict[str, Speedup]:
    """Return the ratios to others; what is timed as the reference has that name."""
    reference = on.against.beside
    return {REFERENCE if n == reference else n: ratio for n, ratio in result.ratios.items()}


def _take_time(on: Judgement, result: BenchResult) -> None:
    draft, against = on.draft, on.against
    name = f"{result.case.name}, {result.pass_}"
    if result.implementation != on.job.file:
        fails = result.status == FAILED and result.code != Code.CLOCK_DISAGREES
        if fails and isinstance(against, AnyModel):
            draft.end(Code.BAD_REFERENCE, f"the reference {result.reason}", case=name)
        return
    if result.status == FAILED:
        draft.add(result.code or Code.WRONG, result.reason, case=name)
        return
    if result.status == SKIPPED:
        code: Code = Code.NO_ROOM if result.code in beside.NO_ROOM else Code.ERROR
        if result.code != Code.NOT_APPLICABLE:
            draft.add(code, result.reason, case=name)
        return
    assert result.seconds
    share = result.gbps / result.limit_gbps if result.gbps and result.limit_gbps else None
    if result.impossible:
        draft.add(Code.IMPOSSIBLE, result.reason, case=name)
    ratios = _ratios(on, result).items()
    values = {other: (ratio.value, ratio.low, ratio.high) for other, ratio in ratios}
    measured = result.seconds.median, values, share, result.peak_extra_bytes
    draft.speed.append(Speed(result.case.name, result.pass_, *measured))
    for other, ratio in _slower(on, result).items():
        draft.add(Code.SLOWER, f"{1 / ratio:.2f} times the time of {other}", case=name)
