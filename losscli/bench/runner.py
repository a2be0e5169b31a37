"""Run tasks: fit them into memory, judge each implementation, and time those that are right."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

import torch

from losscli import environment
from losscli.bench.memory import fit, measure_peak_extra
from losscli.bench.passes import Pass, PassFactory, gradients
from losscli.bench.plan import Task
from losscli.bench.sampling import Contender, ContenderFailedError, describe, interleave
from losscli.bench.statistics import summarize
from losscli.bench.timer import Timer, make_timer, needs_eviction
from losscli.cases import Case
from losscli.config.schema import Config
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
    """Times the tasks of a config on one device."""

    def __init__(
        self,
        config: Config,
        device: str,
        *,
        free_bytes: Callable[[str], int] = environment.free_bytes,
        make_timer: Callable[[str, bool], Timer] = make_timer,
    ) -> None:
        """``free_bytes`` and ``make_timer`` are the machine's, or a test's."""
        self.device, self.timing = device, config.timing
        self.tolerances = {tolerance.case: tolerance.ulp for tolerance in config.tolerances}
        self.free_bytes = free_bytes
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
                    gate = Gate(case, *operands, self.tolerances.get(case.name))
                except Exception as error:
                    if not environment.is_out_of_memory(error):
                        raise
                    results |= {i.name: _gone_wrong(case, i.name, pass_, error) for i in able}
            if able and operands is not None:
                results |= self._run_pass(gate, case, pass_, able, *operands)
            yield from (results[name] for name in task.passes[pass_])

    def _run_pass(
        self,
        gate: Gate,
        case: Case,
        pass_: str,
        implementations: Sequence[Implementation],
        input: Tensor,
        target: Tensor,
    ) -> dict[str, BenchResult]:
        """Judge, warm up, sample and judge again."""
        results: dict[str, BenchResult] = {}
        entries: list[_Entry] = []
        passes = PassFactory(pass_, case.reduction, input, target)
        timer = self.timer(needs_eviction(self.device, self.timing.cache, case.floor_bytes(pass_)))
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
                stop = interleave(timer, contenders, self.timing, seed=case.seed)
            for entry in entries:
                results[entry.contender.name] = _conclude(gate, case, pass_, entry, stop)
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


def _conclude(gate: Gate, case: Case, pass_: str, entry: _Entry, stop: str) -> BenchResult:
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
    return BenchResult(
        case,
        contender.name,
        pass_,
        OK,
        describe(stop, contender.samples),
        seconds=seconds,
        gbps=count / seconds.median / 1e9,
        peak_extra_bytes=entry.peak_extra_bytes,
        error=entry.error,
    )


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
