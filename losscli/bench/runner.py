"""Run tasks: plan memory, judge each implementation, time those that are right."""

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

from msgspec import structs

from losscli.bench.conditions import Conditions, look_at
from losscli.bench.energy import measure
from losscli.bench.limit import RANKED, TIMED, Limit, Limits, faster, scaled
from losscli.bench.passes import Contents, LocalPass
from losscli.bench.plan import Right, Task, TimeIsUp, alarm, lineup
from losscli.bench.remote import RemotePass, SharedTimer
from losscli.bench.results import compared, timed, untimed
from losscli.bench.sampling import interleave
from losscli.bench.statistics import summarize
from losscli.cases.axes import DEVICE, GRAPH, HOST, Mode, PassName
from losscli.cases.case import Case
from losscli.errors import LosscliError
from losscli.implementations import Implementation
from losscli.implementations.errors import SubjectError
from losscli.implementations.local import LocalSubject
from losscli.implementations.passes import PassFactory, gradients
from losscli.implementations.subject import RemoteSubject, workers
from losscli.implementations.timer import Timer, make_timer, needs_eviction
from losscli.machine import memory
from losscli.reasons import Code, Reason
from losscli.runs.judgements import is_busy
from losscli.runs.measurements import Collective, OfRank
from losscli.runs.records import FAIL, HOST_GAPS, SKIPPED, BenchResult
from losscli.truth.inputs import make_inputs


def _make_contents(task: Task) -> Contents:
    labels = any(each.setting.labels for each in task.files.values())
    return Contents(task, make_inputs(task.case, task.reference, labels=labels))


BUSY_NOTE = "other programs are running on this machine: times will be longer and vary more"


class Measured(NamedTuple):
    """One process's results of a pass."""

    results: list[BenchResult]
    """Without ratios: see :func:`~losscli.bench.results.compared`."""
    right: Right


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
        contents: Callable[[Task], Contents] = _make_contents,
        exchange: Callable[[Case, PassName, Timer], Collective | None] | None = None,
        show: Callable[[Sequence[BenchResult]], object] | None = None,
    ) -> None:
        self.device, self.free_bytes = device, free_bytes
        self.limits = limits or Limits(device)
        self.conditions = conditions or look_at(device)
        self.notify = cache(notify)
        self.clock, self.contents, self.exchange, self.show = clock, contents, exchange, show
        self.timer = cache(lambda evicts, mode: make_timer(device, evicts, mode))

    def run(self, task: Task) -> Generator[BenchResult, None, None]:
        """Yield a task's results in the order asked for, each pass when it is finished."""
        for measured in self.measure(task):
            results = compared(measured.results)
            if self.show:
                self.show(results)
            yield from results

    def measure(self, task: Task) -> Generator[Measured, None, None]:
        """Yield the results of each pass; what cannot run has a result with the reason."""
        named = {task.find(name).file for names in task.passes.values() for name in names}
        workers.end_others(named)
        free = self.free_bytes(self.device)
        lineups = {pass_: lineup(task, pass_, free) for pass_ in task.passes}
        contents: Contents | None = None
        began = self.clock()
        for number, (pass_, (able, reasons)) in enumerate(lineups.items()):
            lost = partial(untimed, task, pass_)
            found = {name: lost(name, why, status=SKIPPED) for name, why in reasons.items()}
            budget = task.budget.after(self.clock() - began, len(lineups) - number)
            # If one rank stopped in the middle, the others would wait for its calls.
            with suppress(TimeIsUp), alarm(budget.left, rings=not task.case.placement):
                try:
                    contents = contents or (self.contents(task) if able else None)
                except Exception as error:
                    if not memory.is_out_of_memory(error):
                        raise
                    found |= {i.name: lost(i.name, error) for i in able}
                if able and contents:
                    self._run_pass(contents, replace(task, budget=budget), pass_, able, found)
            skipped = partial(lost, why=budget.used_up, status=SKIPPED)
            results = [found.get(name) or skipped(name) for name in task.passes[pass_]]
            yield Measured(results, contents.right if contents else {})

    def _run_pass(
        self,
        contents: Contents,
        task: Task,
        pass_: PassName,
        implementations: Sequence[Implementation],
        found: dict[str, BenchResult],
    ) -> None:
        """Judge, warm up, sample and judge again; add results by name, also before TimeIsUp."""
        case, until = task.case, self.clock() + task.budget.share
        entries: list[LocalPass | RemotePass] = []
        passes = PassFactory(case, pass_, contents.timed)
        evicts = needs_eviction(self.device, task.cache, case.floor_bytes(pass_))
        timer = self.timer(evicts, HOST if task.mode == HOST else DEVICE)
        if any(implementation.file for implementation in implementations):
            timer = SharedTimer(timer, self.device)
        reads = [t for t in (*contents.read, passes.full_grad_output) if t is not None]
        find = partial(self.limits.find, case.shard, pass_, timer, reads)
        seconds = min(TIMED.max_time, task.budget.share / 4)
        timing = replace(TIMED, max_time=seconds, confidence=task.timing.confidence)
        limit, mover, collective = Limit(), None, None
        if task.limited:
            moves = _moves(case, pass_)
            limit = find(timing=RANKED if moves else timing)
            mover = self.limits.contender(case.shard, pass_, timer, reads) if moves else None
            if mover:
                mover.warm_up(timer)
            collective = self.exchange(case, pass_, timer) if self.exchange else None
        with gradients(pass_):
            for implementation in implementations:
                admitted = _admit(contents, implementation, passes, evicts)
                if isinstance(admitted, BenchResult):
                    found[implementation.name] = admitted
                else:
                    entries.append(admitted)
            for entry in entries:
                entry.warm_up(timer)
                if task.peaks and entry.warm:
                    entry.run(entry.measure_memory)
            self.conditions.begin()
            gaps = timer.gaps
            stop = interleave(
                timer,
                [*entries, *filter(None, [mover])],
                task.timing,
                seed=case.seed,
                before=contents.change,  # each batch has other contents
                slowed=self.conditions.slowed,
                clock=self.clock,
                until=until,
            )
            conditions = dict(self.conditions.record())
            if timer.gaps > gaps:
                conditions[HOST_GAPS] = timer.gaps - gaps
            if mover and mover.failure is None and mover.samples:
                limit = scaled(Limit(summarize(mover.samples).median), case.shard, pass_)
            around = {"stop": stop, "conditions": conditions, "collective": collective}
            for entry in entries:
                found[entry.name] = _limited(_conclude(task, entry, around), limit)
                entry.close()
        mover = None  # frees memory for the next measurement of the limit
        if any(result.impossible for result in found.values()):
            # The memory may have been slower a moment ago.
            limit = faster(limit, find(again=True, timing=timing))
            found |= {n: _limited(each, limit, limit_repeated=True) for n, each in found.items()}
        if is_busy(conditions) and any(result.seconds for result in found.values()):
            self.notify(BUSY_NOTE)


def _moves(case: Case, pass_: PassName) -> bool:
    """Tell whether the limit is sampled in the rounds of a case.

    Matrix products are, since their speed follows the device's clock. So are copies beyond a CPU's
    cache, since other programs use its memory; a probe would disturb a case that fits the cache.
    """
    if case.operations(pass_):
        return True
    return case.device == "cpu" and case.floor_bytes(pass_) > memory.cache_bytes("cpu")


def _admit(
    contents: Contents, implementation: Implementation, passes: PassFactory, evicts: bool
) -> LocalPass | RemotePass | BenchResult:
    task, case, name = contents.task, contents.case, implementation.name
    lost = partial(untimed, task, passes.pass_, name)
    try:
        entry: LocalPass | RemotePass
        if implementation.file:
            remote = RemoteSubject.bind(implementation, case)
            entry = RemotePass(remote, passes.pass_, contents, evicts=evicts)
        else:
            local = LocalSubject.bind(implementation, case)
            made = local.repeated(passes, captured=task.mode == GRAPH)
            entry = LocalPass(name, passes.pass_, made, contents)
        verdict = entry.first()
    except LosscliError:
        raise
    except Exception as error:
        return lost(error)
    if verdict.status == FAIL:
        return lost(Reason(verdict.code, verdict.reason), error=verdict.error)
    entry.error, entry.code = verdict.error, verdict.code
    return entry


def _conclude(task: Task, entry: LocalPass | RemotePass, around: Mapping[str, Any]) -> BenchResult:
    """Return the time, unless the timed calls computed something wrong."""
    warm, samples = entry.warm, entry.samples
    lost = partial(untimed, task, entry.pass_, entry.name, conditions=around["conditions"])
    disagreement: Reason | None = None
    if warm and samples:
        try:
            disagreement = entry.disagreement(summarize(samples).median, warm.host_seconds)
        except SubjectError as error:
            return lost(error)
    verdict = None if entry.failure else entry.run(entry.last)
    if entry.failure:
        return lost(entry.failure)
    if verdict and verdict.status == FAIL:
        text = f"correct before timing, wrong while timed: {verdict.reason}"
        return lost(Reason(Code.WRONG_AFTER_WARM_UP, text), error=verdict.error)
    if disagreement:
        return lost(disagreement, error=entry.error)
    no_time = around["stop"] == "budget"
    if not samples:
        text = f"every sample was taken while throttled; {entry.thrown_away} discarded"
        why = task.budget.used_up if no_time else Reason(Code.THROTTLED, text)
        return lost(why, status=SKIPPED, error=entry.error)
    on_host = task.case.device == "cpu" or task.mode == HOST
    result = timed(
        *(task, entry.pass_, entry.name, samples),
        code=entry.code,
        error=entry.error,
        discarded=entry.thrown_away,
        waits=bool(warm and warm.waits),
        host_seconds=warm.host_seconds if warm and not on_host else None,
        peak_extra_bytes=entry.peak_extra_bytes,
        **around,
    )
    if task.case.placement:
        result = _with_ranks(result, entry)
        none = "it is not measured over ranks"
        return structs.replace(result, no_energy=none) if task.energy else result
    if task.energy and no_time:
        return structs.replace(result, no_energy=task.budget.used_up.text)
    if task.energy and result.seconds:
        energy = entry.run(partial(measure, task.case.device, entry.looped, result.seconds.median))
        if energy is None:
            return lost(entry.failure or AssertionError())
        joules, watts, reason = energy
        return structs.replace(result, joules=joules, watts=watts, no_energy=reason)
    return result


def _limited(result: BenchResult, limit: Limit, **fields: Any) -> BenchResult:
    if not result.seconds:
        return result
    gbps = result.bytes / 1e9 / limit.seconds if limit.seconds else None
    return structs.replace(result, limit_gbps=gbps, no_limit=limit.reason, **fields)


def _with_ranks(result: BenchResult, entry: LocalPass | RemotePass) -> BenchResult:
    peaks = entry.contents.group.gather("reports its memory", entry.peak_extra_bytes)
    samples = zip(*(entry.warm.of_ranks if entry.warm else ()), strict=True)
    of_ranks = enumerate(zip(samples, peaks, strict=True))
    ranks = tuple(OfRank(n, summarize(own).median, peak) for n, (own, peak) in of_ranks)
    most = max((peak for peak in peaks if peak is not None), default=None)
    return structs.replace(result, peak_extra_bytes=most, ranks=ranks)
