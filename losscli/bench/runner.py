"""Run tasks: fit them into memory, judge each implementation, and time those that are right."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

import torch

from losscli.bench.conditions import Conditions, look_at
from losscli.bench.contents import Contents
from losscli.bench.energy import Energy, measure
from losscli.bench.limit import RANKED, TIMED, Limit, Limits, faster, scaled
from losscli.bench.outcome import (
    Found,
    Outcome,
    Surroundings,
    Timed,
    Untimed,
    conclude,
    gone_wrong,
    results,
)
from losscli.bench.passes import LocalPass
from losscli.bench.plan import Task, lineup
from losscli.bench.remote import RemotePass, SharedTimer
from losscli.bench.sampling import Contender, interleave
from losscli.bench.statistics import summarize
from losscli.cases.axes import DEVICE, GRAPH, HOST, Mode, PassName
from losscli.cases.case import Case
from losscli.errors import LosscliError
from losscli.implementations import Implementation
from losscli.implementations.errors import SubjectError
from losscli.implementations.local import LocalSubject
from losscli.implementations.passes import PassFactory, gradients
from losscli.implementations.remote import RemoteSubject, workers
from losscli.implementations.timer import Timer, make_timer, needs_eviction
from losscli.machine import memory
from losscli.reasons import Code, Reason
from losscli.runs.judgements import is_busy
from losscli.runs.records import (
    FAIL,
    FAILED,
    HOST_GAPS,
    SKIPPED,
    BenchResult,
    Collective,
    Error,
    OfRank,
    Stop,
)
from losscli.truth.inputs import make_inputs


def make_contents(task: Task) -> Contents:
    """Make the operands of a task."""
    operands = make_inputs(task.case, task.reference)
    return Contents(task.case, operands, task.loosened, task.right, task.reference)


def exchange_nothing(case: Case, pass_: PassName, timer: Timer) -> Collective | None:
    """Return nothing: what a process exchanges that is alone."""
    return None


BUSY_NOTE = "other programs are running on this machine: times will be longer and vary more"


@dataclass
class _Entry:
    """An implementation that passed the gate."""

    timed: LocalPass | RemotePass
    contender: Contender
    error: Error
    code: Code = Code.NONE
    """The code of the gate's warning."""


class Runner:
    """Times tasks on one device."""

    def __init__(
        self,
        device: str,
        *,
        free_bytes: Callable[[str], int] = memory.free_bytes,
        make_timer: Callable[[str, bool, Mode], Timer] = make_timer,
        limits: Limits | None = None,
        conditions: Conditions | None = None,
        notify: Callable[[str], None] = lambda note: None,
        clock: Callable[[], float] = time.perf_counter,
        contents: Callable[[Task], Contents] = make_contents,
        exchange: Callable[[Case, PassName, Timer], Collective | None] = exchange_nothing,
    ) -> None:
        """``notify`` receives notes for the user; tests and ranks replace the other arguments."""
        self.device = device
        self.free_bytes = free_bytes
        self.limits = limits or Limits(device)
        self.conditions = conditions or look_at(device)
        self.notify = cache(notify)
        self.clock, self.contents, self.exchange = clock, contents, exchange
        self.timer = cache(lambda evicts, mode: make_timer(device, evicts, mode))

    def run(self, task: Task) -> Generator[BenchResult, None, None]:
        """Yield the results of a task in the order asked for, each pass when it is finished."""
        for found in self.measure(task):
            yield from results(task, found.pass_, found.outcomes, found.around)

    def measure(self, task: Task) -> Generator[Found, None, None]:
        """Yield the outcomes of each pass of a task.

        An implementation that cannot run has an outcome with the reason; only an error that ends
        the whole run is raised. Processes of files that the task does not name are ended.
        """
        named = {task.find(name).file for names in task.passes.values() for name in names}
        workers.end_others(named)
        free = self.free_bytes(self.device)
        lineups = {pass_: lineup(task, pass_, free) for pass_ in task.passes}
        contents = None
        for pass_, (able, reasons) in lineups.items():
            outcomes: dict[str, Outcome] = {
                name: Untimed(SKIPPED, reason) for name, reason in reasons.items()
            }
            around = Surroundings()
            if able and contents is None:
                try:
                    contents = self.contents(task)
                except Exception as error:
                    if not memory.is_out_of_memory(error):
                        raise
                    outcomes |= {i.name: gone_wrong(error) for i in able}
            if able and contents is not None:
                around = self._run_pass(contents, task, pass_, able, outcomes)
            yield Found(pass_, outcomes, around, contents.right if contents else {})

    def _run_pass(
        self,
        contents: Contents,
        task: Task,
        pass_: PassName,
        implementations: Sequence[Implementation],
        outcomes: dict[str, Outcome],
    ) -> Surroundings:
        """Find the limit, judge, warm up, sample and judge again.

        Adds to the outcomes, which are those of implementations that cannot run.
        """
        case = task.case
        entries: list[_Entry] = []
        operands = contents.timed
        passes = PassFactory.of_case(case, pass_, operands)
        evicts = needs_eviction(self.device, task.cache, case.floor_bytes(pass_))
        timer = self.timer(evicts, HOST if task.mode == HOST else DEVICE)
        if any(implementation.file for implementation in implementations):
            timer = SharedTimer(timer, self.device)
        reads = [t for t in (*contents.read, passes.full_grad_output) if t is not None]
        find = partial(self.limits.find, case.shard, pass_, timer, reads)
        timing = replace(TIMED, confidence=task.timing.confidence)
        limit = Limit()
        mover: Contender | None = None
        if task.limited:
            moves = _moves(case, pass_)
            limit = find(timing=RANKED if moves else timing)
            mover = self._mover(case.shard, pass_, timer, reads) if moves else None
        collective = self.exchange(case, pass_, timer) if task.limited else None
        with gradients(pass_):
            for implementation in implementations:
                admitted = _admit(contents, task, pass_, implementation, passes, evicts)
                if isinstance(admitted, Untimed):
                    outcomes[implementation.name] = admitted
                else:
                    entries.append(admitted)
            for entry in entries:
                self._prepare(timer, entry, contents, task.peaks)
            self.conditions.begin()
            gaps = timer.gaps
            stop = interleave(
                timer,
                [*(entry.contender for entry in entries), *filter(None, [mover])],
                task.timing,
                seed=case.seed,
                before=contents.change,  # in each batch of samples others
                slowed=self.conditions.slowed,
                clock=self.clock,
            )
            conditions = dict(self.conditions.record())
            if timer.gaps > gaps:
                conditions[HOST_GAPS] = timer.gaps - gaps
            if mover and mover.failure is None and mover.samples:
                limit = scaled(Limit(summarize(mover.samples).median), case.shard, pass_)
            for entry in entries:
                name = entry.contender.name
                outcomes[name] = _conclude(task, entry, stop)
        # What they hold is free for the next measurement of the limit.
        entries.clear()
        mover = None
        around = Surroundings(limit, False, stop, conditions, collective)
        if any(result.impossible for result in results(task, pass_, outcomes, around)):
            # Or the memory was slower a moment ago.
            limit = faster(limit, find(again=True, timing=timing))
            around = Surroundings(limit, True, stop, conditions, collective)
        if is_busy(conditions) and any(isinstance(outcome, Timed) for outcome in outcomes.values()):
            self.notify(BUSY_NOTE)
        return around

    def _prepare(self, timer: Timer, entry: _Entry, contents: Contents, peaks: bool) -> None:
        """Warm up and, for ``peaks``, measure memory; an error is stored in the contender."""
        contender, timed = entry.contender, entry.timed

        def before() -> None:
            contents.touch()
            timed.prepare()

        contender.warm_up(timer)
        if contender.warm:
            contender.warm = replace(contender.warm, before=before)
            if peaks:
                contender.run(timed.measure_memory)

    def _mover(
        self, case: Case, pass_: PassName, timer: Timer, reads: Sequence[torch.Tensor]
    ) -> Contender | None:
        """Return the warmed-up probe, to be sampled in the same rounds."""
        try:
            mover = self.limits.contender(case, pass_, timer, reads)
        except Exception as error:
            if not memory.is_out_of_memory(error):
                raise
            return None
        if mover:
            mover.warm_up(timer)
        return mover


def _moves(case: Case, pass_: PassName) -> bool:
    """Tell whether the limit is sampled in the rounds of a case.

    Matrix products are, because their speed changes with the clock of the device. What moves bytes
    is only beside cases beyond a CPU's cache: other programs use the CPU's memory, so its speed
    changes from second to second. The speed of a GPU's memory does not. A probe would disturb a
    case that fits the cache.
    """
    if case.operations(pass_):
        return True
    return case.device == "cpu" and case.floor_bytes(pass_) > memory.cache_bytes("cpu")


def _admit(
    contents: Contents,
    task: Task,
    pass_: PassName,
    implementation: Implementation,
    passes: PassFactory,
    evicts: bool,
) -> _Entry | Untimed:
    """Run an implementation once, as it will be timed, and judge its result."""
    case, name, captured = task.case, implementation.name, task.mode == GRAPH
    try:
        timed: LocalPass | RemotePass
        if implementation.file:
            remote = RemoteSubject.bind(implementation, case)
            timed = RemotePass(remote, pass_, contents, evicts=evicts, captured=captured)
        else:
            subject = LocalSubject.bind(implementation, case)
            made = subject.graphed(passes) if captured else subject.repeated(passes)
            timed = LocalPass(name, pass_, made, contents, case.device)
        verdict = timed.first()
    except LosscliError:
        raise
    except Exception as error:
        return gone_wrong(error)
    if verdict.status == FAIL:
        return Untimed(FAILED, Reason(verdict.code, verdict.reason), verdict.error)
    return _Entry(timed, Contender(name, timed.call), verdict.error, verdict.code)


def _conclude(task: Task, entry: _Entry, stop: Stop) -> Outcome:
    """Return the time, unless the timed calls computed something wrong."""
    contender, timed, device = entry.contender, entry.timed, task.case.device
    disagreement: Reason | None = None
    if contender.warm and contender.samples:
        median = summarize(contender.samples).median
        try:
            disagreement = timed.disagreement(median, contender.warm.host_seconds)
        except SubjectError as error:
            return gone_wrong(error, sampled=True)
    verdict = None if contender.failure else contender.run(timed.last)
    if contender.failure:
        return gone_wrong(contender.failure, sampled=True)
    if verdict and verdict.status == FAIL:
        reason = Reason(
            Code.WRONG_LATER, f"correct before timing, wrong while timed: {verdict.reason}"
        )
        return Untimed(FAILED, reason, verdict.error, sampled=True)
    if disagreement:
        return Untimed(FAILED, disagreement, entry.error, sampled=True)
    found = conclude(task, contender, entry.error, timed.peak_extra_bytes, stop, entry.code)
    if not isinstance(found, Timed):
        return found
    if task.case.placement:
        found = _with_ranks(found, entry)
        none = Energy(reason="it is not measured over ranks")
        return replace(found, energy=none) if task.energy else found
    if task.energy:
        energy = contender.run(partial(measure, device, timed.looped, found.seconds.median))
        if contender.failure:
            return gone_wrong(contender.failure, sampled=True)
        found = replace(found, energy=energy or found.energy)
    return found


def _with_ranks(found: Timed, entry: _Entry) -> Timed:
    """Return an outcome with what each rank measured, of whose memory the most counts."""
    contender, timed = entry.contender, entry.timed
    peaks = timed.contents.group.gather("tells its memory", timed.peak_extra_bytes)
    samples = zip(*(contender.warm.of_ranks if contender.warm else ()), strict=True)
    ranks = tuple(
        OfRank(number, summarize(own).median, peak)
        for number, (own, peak) in enumerate(zip(samples, peaks, strict=True))
    )
    most = max((peak for peak in peaks if peak is not None), default=None)
    return replace(found, peak_extra_bytes=most, ranks=ranks)
