"""Run tasks: fit them into memory, judge each implementation, and time those that are right."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch

from losscli import environment
from losscli.bench.conditions import Conditions, look_at
from losscli.bench.contents import Contents
from losscli.bench.limit import Limit, Limits, faster, scaled
from losscli.bench.memory import fit, measure_peak_extra
from losscli.bench.passes import Captured, Pass, PassFactory, gradients
from losscli.bench.plan import Task, unavailable
from losscli.bench.sampling import Contender, ContenderFailedError, describe, interleave
from losscli.bench.statistics import paired_ratios, summarize
from losscli.bench.timer import Timer, make_timer, needs_eviction
from losscli.cases import Case
from losscli.config.schema import DEVICE, GRAPH, HOST
from losscli.errors import LosscliError
from losscli.implementations import Implementation, find_implementation
from losscli.inputs import make_inputs
from losscli.results import FAIL, FAILED, HOST_GAPS, OK, SKIPPED, BenchResult, Error, VerifyResult
from losscli.verify.gate import Gate

BUSY_NOTE = (
    "other programs are running on this machine: times will vary, and be longer than they need be"
)


@dataclass
class _Entry:
    """An implementation that passed the gate."""

    timed: Pass
    contender: Contender
    error: Error
    device: str
    peak_extra_bytes: int | None = None

    def measure_memory(self) -> None:
        """Call once more, to see what it allocates; a graph has allocated all there is."""
        if isinstance(self.timed, Captured):
            return
        self.peak_extra_bytes = measure_peak_extra(self.timed, self.device)


@dataclass(frozen=True)
class _Sampled:
    """What holds for all samples of a pass."""

    stop: str
    """Why there are no more."""
    conditions: Mapping[str, Any]

    @property
    def gaps(self) -> str:
        """What to say of batches in which the GPU waited for the host; mostly nothing."""
        gaps = self.conditions.get(HOST_GAPS)
        return f"batches with host gaps: {gaps}" if gaps else ""


class Runner:
    """Times tasks on one device."""

    def __init__(
        self,
        device: str,
        *,
        free_bytes: Callable[[str], int] = environment.free_bytes,
        make_timer: Callable[[str, bool, str], Timer] = make_timer,
        limits: Limits | None = None,
        conditions: Conditions | None = None,
        notify: Callable[[str], None] = lambda note: None,
    ) -> None:
        """``notify`` takes notes for the user; the rest is the machine's, or a test's."""
        self.device = device
        self.free_bytes = free_bytes
        self.limits = limits or Limits(device)
        self.conditions = conditions or look_at(device)
        self.notify = cache(notify)
        self.timer = cache(lambda evicts, mode: make_timer(device, evicts, mode))

    def run(self, task: Task) -> Generator[BenchResult, None, None]:
        """Yield the results of a task in the order asked for, each pass when it is finished.

        What cannot run is a result that says why; only an error that ends the whole run is raised.
        """
        case = task.case
        free = self.free_bytes(self.device)
        lineups = {pass_: _lineup(task, pass_, free) for pass_ in task.passes}
        contents = None
        for pass_, (able, results) in lineups.items():
            if able and contents is None:
                try:
                    contents = Contents(case, *make_inputs(case), task.loosened)
                except Exception as error:
                    if not environment.is_out_of_memory(error):
                        raise
                    results |= {i.name: _gone_wrong(case, i.name, pass_, error) for i in able}
            if able and contents is not None:
                results |= self._run_pass(contents, task, pass_, able)
            for name in task.passes[pass_]:
                yield replace(results[name], table=task.table, mode=task.mode, cache=task.cache)

    def _run_pass(
        self,
        contents: Contents,
        task: Task,
        pass_: str,
        implementations: Sequence[Implementation],
    ) -> dict[str, BenchResult]:
        """Find the limit, judge, warm up, sample and judge again."""
        case = task.case
        results: dict[str, BenchResult] = {}
        entries: list[_Entry] = []
        passes = PassFactory(
            pass_, case.reduction, contents.input, contents.target, case.grad_output
        )
        evicts = needs_eviction(self.device, task.cache, case.floor_bytes(pass_))
        timer = self.timer(evicts, HOST if task.mode == HOST else DEVICE)
        operands = (contents.input, contents.target, passes.full_grad_output)
        reads = [tensor for tensor in operands if tensor is not None]
        limit = self.limits.find(case, pass_, timer, reads)
        mover = self._mover(case, pass_, timer, reads)
        try:
            with gradients(pass_):
                for implementation in implementations:
                    admitted = _admit(contents.gate, task, pass_, implementation, passes)
                    if isinstance(admitted, BenchResult):
                        results[admitted.implementation] = admitted
                    else:
                        entries.append(admitted)
                for entry in entries:
                    self._prepare(timer, entry, contents)
                sampled = self._sample(timer, entries, mover, task, contents)
                if mover and mover.failure is None and mover.samples:
                    limit = scaled(Limit(summarize(mover.samples).median), case, pass_)
                timed = [_conclude(contents.gate, task, pass_, e, sampled, limit) for e in entries]
                timed = [replace(result, conditions=sampled.conditions) for result in timed]
        finally:
            # A Warm's call is its contender: the cycle would keep the operands of this case beside
            # those of the next until Python's collector runs.
            for contender in (*(entry.contender for entry in entries), *filter(None, [mover])):
                contender.warm = None
            entries.clear()
        if any(result.impossible for result in timed):  # or the memory was slower a moment ago
            limit = faster(limit, self.limits.find(case, pass_, timer, reads, again=True))
            timed = [_again_beside(result, limit) for result in timed]
        for result in timed:
            results[result.implementation] = _doubted(result)
            if result.busy:
                self.notify(BUSY_NOTE)
        return _with_ratios(results)

    def _prepare(self, timer: Timer, entry: _Entry, contents: Contents) -> None:
        """Warm up and measure memory; what goes wrong stays with the contender."""
        with contextlib.suppress(ContenderFailedError):
            warm = timer.warm_up(entry.contender)

            def before() -> None:
                contents.touch()
                if isinstance(entry.timed, Captured):
                    entry.timed.prepare()

            entry.contender.warm = replace(warm, before=before)
            entry.contender.run(entry.measure_memory)

    def _mover(
        self, case: Case, pass_: str, timer: Timer, reads: Sequence[torch.Tensor]
    ) -> Contender | None:
        """Return what moves the bytes alone, warmed up, to be sampled in the same rounds.

        Where it is a CPU's memory, not its cache, that is read: others use it, and its speed now is
        not that of a second ago. A GPU's is. A case that the cache can hold it would disturb.
        """
        if case.device != "cpu" or case.floor_bytes(pass_) <= environment.cache_bytes("cpu"):
            return None
        try:
            mover = self.limits.contender(case, pass_, timer, reads)
            if mover:
                mover.warm = timer.warm_up(mover)
        except ContenderFailedError:
            return None
        except Exception as error:
            if not environment.is_out_of_memory(error):
                raise
            return None
        return mover

    def _sample(
        self,
        timer: Timer,
        entries: Sequence[_Entry],
        mover: Contender | None,
        task: Task,
        contents: Contents,
    ) -> _Sampled:
        """Take samples, of other contents in each batch."""
        self.conditions.begin()
        before = timer.gaps
        stop = interleave(
            timer,
            [*(entry.contender for entry in entries), *filter(None, [mover])],
            task.timing,
            seed=task.case.seed,
            before=contents.change,
            slowed=self.conditions.slowed,
        )
        gaps = timer.gaps - before
        return _Sampled(stop, {**self.conditions.record(), **({HOST_GAPS: gaps} if gaps else {})})


def _admit(
    gate: Gate, task: Task, pass_: str, implementation: Implementation, passes: PassFactory
) -> _Entry | BenchResult:
    """Run an implementation once, just as it will be timed, and judge what it computes."""
    case, name = task.case, implementation.name
    make = passes.capture if task.mode == GRAPH else passes.make
    try:
        timed = make(implementation.bind(case))
        timed.compute()
        verdict = gate.judge(name, pass_, timed.loss, timed.input.grad, timed.incoming)
    except LosscliError:
        raise
    except Exception as error:
        return _gone_wrong(case, name, pass_, error)
    timed.release()
    if verdict.status == FAIL:
        return BenchResult(case, name, pass_, FAILED, verdict.reason, error=verdict.error)
    return _Entry(timed, Contender(name, timed), verdict.error, case.device)


def _conclude(
    gate: Gate, task: Task, pass_: str, entry: _Entry, sampled: _Sampled, limit: Limit
) -> BenchResult:
    """Make the result of samples, unless what was timed computed something wrong."""
    case, contender = task.case, entry.contender
    verdict = _judge_again(gate, pass_, entry)
    if contender.failure:
        return _gone_wrong(case, contender.name, pass_, contender.failure)
    if verdict and verdict.status == FAIL:
        reason = f"right at first, wrong while timed: {verdict.reason}"
        return BenchResult(case, contender.name, pass_, FAILED, reason, error=verdict.error)
    if not contender.samples:
        reason = f"every sample was taken while throttled, {contender.thrown_away} thrown away"
        return BenchResult(case, contender.name, pass_, SKIPPED, reason, error=entry.error)
    seconds = summarize(contender.samples)
    count = case.floor_bytes(pass_)
    host_apart = case.device != "cpu" and task.mode != HOST
    result = BenchResult(
        case,
        contender.name,
        pass_,
        OK,
        "; ".join(filter(None, (describe(sampled.stop, contender), sampled.gaps, limit.reason))),
        seconds=seconds,
        host_seconds=contender.warm.host_seconds if contender.warm and host_apart else None,
        gbps=count / seconds.median / 1e9,
        planned_extra_bytes=find_implementation(contender.name).temporary_bytes(case),
        peak_extra_bytes=entry.peak_extra_bytes,
        error=entry.error,
    )
    return _beside(result, limit)


def _beside(result: BenchResult, limit: Limit) -> BenchResult:
    """Hold a time against the limit."""
    if not (result.seconds and limit.seconds):
        return result
    return replace(result, limit_gbps=result.bytes / limit.seconds / 1e9)


def _again_beside(result: BenchResult, limit: Limit) -> BenchResult:
    """Hold a time against a limit that was measured again."""
    if result.limit_gbps is None:
        return result
    return replace(_beside(result, limit), reason=f"{result.reason}; limit measured twice")


def _doubted(result: BenchResult) -> BenchResult:
    """Say so where a time cannot be."""
    if not result.impossible:
        return result
    share = f"IMPOSSIBLE, {result.limit_share:.0%} of what moving the bytes alone allows"
    return replace(result, reason=f"{share}; {result.reason}")


def _judge_again(gate: Gate, pass_: str, entry: _Entry) -> VerifyResult | None:
    """Judge the loss of the last call that was timed, and a gradient of the same contents.

    The gradient is that of one more call, for a timed call gives its own back.
    """
    contender, timed = entry.contender, entry.timed
    if contender.failure:
        return None
    verdict = gate.judge(contender.name, "forward", timed.loss)
    if verdict.status != FAIL and pass_ == "forward_backward":
        with contextlib.suppress(ContenderFailedError):
            contender.run(timed.compute)
            verdict = gate.judge(
                contender.name, pass_, timed.loss, timed.input.grad, timed.incoming
            )
    timed.release()
    return verdict


def _lineup(
    task: Task, pass_: str, free: int
) -> tuple[list[Implementation], dict[str, BenchResult]]:
    """Return the implementations that can run, and why the others do not."""
    case = task.case
    asked = [find_implementation(name) for name in task.passes[pass_]]
    reasons = {i.name: reason for i in asked if (reason := i.unavailable(case))}
    if why := case.impossible or unavailable(task.mode, case.device):
        reasons = {i.name: why for i in asked}
    able, misfits = fit(case, pass_, [i for i in asked if i.name not in reasons], free, task.mode)
    reasons |= misfits
    skipped = {
        name: BenchResult(case, name, pass_, SKIPPED, reason) for name, reason in reasons.items()
    }
    return able, skipped


def _gone_wrong(case: Case, name: str, pass_: str, error: Exception) -> BenchResult:
    """Turn an exception into a result: out of memory is nobody's fault, all else is."""
    first_line = str(error).strip().partition("\n")[0]
    if environment.is_out_of_memory(error):
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()
        return BenchResult(case, name, pass_, SKIPPED, f"out of memory: {first_line}")
    return BenchResult(case, name, pass_, FAILED, f"raised {type(error).__name__}: {first_line}")


def _with_ratios(results: dict[str, BenchResult]) -> dict[str, BenchResult]:
    """Add to each result how many times faster it is than each other one."""
    samples = {name: r.seconds.samples for name, r in results.items() if r.seconds}
    found = paired_ratios(samples)
    return {
        name: replace(
            result,
            speedup={other: ratio.value for other, ratio in found.get(name, {}).items()},
            ratios=found.get(name, {}),
        )
        for name, result in results.items()
    }
