"""Run tasks: fit them into memory, judge each implementation, and time those that are right."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

import torch

from losscli import environment
from losscli.bench.limit import Limit, Limits
from losscli.bench.memory import fit, measure_peak_extra, planned_extra_bytes
from losscli.bench.passes import Pass, PassFactory, gradients
from losscli.bench.plan import Task
from losscli.bench.sampling import Contender, ContenderFailedError, describe, interleave
from losscli.bench.statistics import summarize
from losscli.bench.timer import Timer, make_timer, needs_eviction
from losscli.cases import Case
from losscli.errors import LosscliError
from losscli.implementations import Implementation, find_implementation
from losscli.inputs import make_inputs
from losscli.results import FAIL, FAILED, OK, SKIPPED, BenchResult, Error
from losscli.verify.gate import Gate

if TYPE_CHECKING:
    from torch import Tensor


@dataclass
class _Entry:
    """An implementation that passed the gate."""

    timed: Pass
    contender: Contender
    error: Error
    device: str
    peak_extra_bytes: int | None = None

    def measure_memory(self) -> None:
        """Call once more, to see what it allocates."""
        self.peak_extra_bytes = measure_peak_extra(self.timed, self.device)


class Runner:
    """Times tasks on one device."""

    def __init__(
        self,
        device: str,
        *,
        free_bytes: Callable[[str], int] = environment.free_bytes,
        make_timer: Callable[[str, bool], Timer] = make_timer,
        limits: Limits | None = None,
    ) -> None:
        """``free_bytes``, ``make_timer`` and ``limits`` are the machine's, or a test's."""
        self.device = device
        self.free_bytes = free_bytes
        self.limits = limits or Limits(device)
        self.timer = cache(lambda evicts: make_timer(device, evicts))

    def run(self, task: Task) -> Generator[BenchResult, None, None]:
        """Yield the results of a task in the order asked for, each pass when it is finished.

        What cannot run is a result that says why; only an error that ends the whole run is raised.
        """
        case = task.case
        free = self.free_bytes(self.device)
        lineups = {pass_: _lineup(case, pass_, names, free) for pass_, names in task.passes.items()}
        operands = None
        for pass_, (able, results) in lineups.items():
            if able and operands is None:
                try:
                    operands = make_inputs(case)
                    gate = Gate(case, *operands, task.loosened)
                except Exception as error:
                    if not environment.is_out_of_memory(error):
                        raise
                    results |= {i.name: _gone_wrong(case, i.name, pass_, error) for i in able}
            if able and operands is not None:
                results |= self._run_pass(gate, task, pass_, able, *operands)
            for name in task.passes[pass_]:
                yield replace(results[name], table=task.table)

    def _run_pass(
        self,
        gate: Gate,
        task: Task,
        pass_: str,
        implementations: Sequence[Implementation],
        input: Tensor,
        target: Tensor,
    ) -> dict[str, BenchResult]:
        """Find the limit, judge, warm up, sample and judge again."""
        case, timing = task.case, task.timing
        results: dict[str, BenchResult] = {}
        entries: list[_Entry] = []
        passes = PassFactory(pass_, case.reduction, input, target)
        timer = self.timer(needs_eviction(self.device, timing.cache, case.floor_bytes(pass_)))
        reads = [t for t in (input, target, passes.grad_output) if t is not None]
        limit = self.limits.find(case, pass_, timer, reads)
        try:
            with gradients(pass_):
                for implementation in implementations:
                    admitted = _admit(gate, case, pass_, implementation, passes)
                    if isinstance(admitted, BenchResult):
                        results[admitted.implementation] = admitted
                    else:
                        entries.append(admitted)
                for entry in entries:
                    self._prepare(timer, entry)
                contenders = [entry.contender for entry in entries]
                stop = interleave(timer, contenders, timing, seed=case.seed)
            for entry in entries:
                results[entry.contender.name] = _conclude(gate, case, pass_, entry, stop, limit)
        finally:
            # A Warm's call is its contender: the cycle would keep the operands of this case beside
            # those of the next until Python's collector runs.
            for entry in entries:
                entry.contender.warm = None
        return _with_speedups(results)

    def _prepare(self, timer: Timer, entry: _Entry) -> None:
        """Warm up and measure memory; what goes wrong stays with the contender."""
        with contextlib.suppress(ContenderFailedError):
            entry.contender.warm = timer.warm_up(entry.contender)
            entry.contender.run(entry.measure_memory)


def _admit(
    gate: Gate, case: Case, pass_: str, implementation: Implementation, passes: PassFactory
) -> _Entry | BenchResult:
    """Run an implementation once, just as it will be timed, and judge what it computes."""
    name = implementation.name
    try:
        timed = passes.make(implementation.bind(case))
        timed.compute()
        verdict = gate.judge(name, pass_, timed.loss, timed.input.grad)
    except LosscliError:
        raise
    except Exception as error:
        return _gone_wrong(case, name, pass_, error)
    timed.release()
    if verdict.status == FAIL:
        return BenchResult(case, name, pass_, FAILED, verdict.reason, error=verdict.error)
    return _Entry(timed, Contender(name, timed), verdict.error, case.device)


def _conclude(
    gate: Gate, case: Case, pass_: str, entry: _Entry, stop: str, limit: Limit
) -> BenchResult:
    """Make the result of samples, unless the last call that was timed computed a wrong loss."""
    contender = entry.contender
    if contender.failure:
        return _gone_wrong(case, contender.name, pass_, contender.failure)
    verdict = gate.judge(contender.name, "forward", entry.timed.loss)
    entry.timed.release()
    if verdict.status == FAIL:
        reason = f"right at first, wrong while timed: {verdict.reason}"
        return BenchResult(case, contender.name, pass_, FAILED, reason, error=verdict.error)
    seconds = summarize(contender.samples)
    count = case.floor_bytes(pass_)
    on_gpu = case.device != "cpu"
    result = BenchResult(
        case,
        contender.name,
        pass_,
        OK,
        "; ".join(filter(None, (describe(stop, contender.samples), limit.reason))),
        seconds=seconds,
        host_seconds=contender.warm.host_seconds if contender.warm and on_gpu else None,
        gbps=count / seconds.median / 1e9,
        limit_gbps=count / limit.seconds / 1e9 if limit.seconds else None,
        planned_extra_bytes=planned_extra_bytes(case, find_implementation(contender.name)),
        peak_extra_bytes=entry.peak_extra_bytes,
        error=entry.error,
    )
    if result.impossible:
        share = f"IMPOSSIBLE, {result.limit_share:.0%} of what moving the bytes alone allows"
        return replace(result, reason=f"{share}; {result.reason}")
    return result


def _lineup(
    case: Case, pass_: str, names: Sequence[str], free: int
) -> tuple[list[Implementation], dict[str, BenchResult]]:
    """Return the implementations that can run, and why the others do not."""
    asked = [find_implementation(name) for name in names]
    reasons = {i.name: reason for i in asked if (reason := i.unavailable(case))}
    able, misfits = fit(case, pass_, [i for i in asked if i.name not in reasons], free)
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


def _with_speedups(results: dict[str, BenchResult]) -> dict[str, BenchResult]:
    """Add to each result how many times faster it is than each other one."""
    medians = {name: r.seconds.median for name, r in results.items() if r.seconds}
    return {
        name: replace(
            result,
            speedup={
                other: median / medians[name]
                for other, median in medians.items()
                if other != name and name in medians
            },
        )
        for name, result in results.items()
    }
