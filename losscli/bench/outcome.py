"""Builds the results of a pass from the outcome of each implementation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from losscli.axes import HOST, PassName
from losscli.bench.limit import Limit
from losscli.bench.plan import Task
from losscli.bench.ratios import speedups
from losscli.bench.sampling import Contender, describe
from losscli.bench.statistics import half_width, summarize
from losscli.implementations import find_implementation
from losscli.implementations.errors import SubjectError
from losscli.machine import memory
from losscli.reasons import Code, Reason
from losscli.runs.judgements import is_busy, is_impossible
from losscli.runs.records import (
    FAILED,
    HOST_GAPS,
    OK,
    SKIPPED,
    BenchResult,
    BenchStatus,
    Error,
    Seconds,
    Speedup,
    Stop,
)

_NO_ERROR, _NO_LIMIT = Error(), Limit()


@dataclass(frozen=True)
class Untimed:
    """The outcome of an implementation without a time, with the reason."""

    status: BenchStatus
    reason: Reason
    error: Error = _NO_ERROR
    sampled: bool = False
    """Whether sampling of the implementation had begun."""


@dataclass(frozen=True)
class Timed:
    """The outcome of an implementation that was correct before and after it was timed."""

    seconds: Seconds
    host_seconds: float | None
    peak_extra_bytes: int | None
    described: str
    """Why sampling stopped, and the precision of the median."""
    error: Error = _NO_ERROR
    thrown_away: int = 0
    """Samples discarded because the machine was throttled."""
    default_allocator_seconds: float | None = None
    """Median in a process with the default allocator."""
    code: Code = ""
    """The code of the gate's warning."""


Outcome = Untimed | Timed


@dataclass(frozen=True)
class Surroundings:
    """The facts that all implementations timed side by side share."""

    limit: Limit = _NO_LIMIT
    measured_twice: bool = False
    """Whether the limit is the faster of two measurements."""
    stop: Stop | None = None
    conditions: Mapping[str, Any] = field(default_factory=dict)

    @property
    def gaps(self) -> str:
        """The note on batches in which the GPU waited for the host; empty if there are none."""
        gaps = self.conditions.get(HOST_GAPS)
        return f"batches with host gaps: {gaps}" if gaps else ""

    @property
    def busy(self) -> bool:
        """Whether other programs took so much of the machine that the report mentions it."""
        return is_busy(self.conditions)


@dataclass(frozen=True)
class Found:
    """The outcomes of a pass in one process, or merged from several."""

    pass_: PassName
    outcomes: Mapping[str, Outcome]
    around: Surroundings

    @property
    def timed(self) -> dict[str, Timed]:
        """The outcomes with a time, by implementation."""
        return {name: each for name, each in self.outcomes.items() if isinstance(each, Timed)}


def conclude(
    task: Task,
    contender: Contender,
    error: Error,
    peak_extra_bytes: int | None,
    stop: Stop,
    code: Code = "",
) -> Outcome:
    """Return the outcome of an implementation whose results were correct to the end.

    ``code``: of the gate's warning.
    """
    if not contender.samples:
        text = f"every sample was taken while throttled; {contender.thrown_away} discarded"
        return Untimed(SKIPPED, Reason("throttled", text), error, sampled=True)
    host_apart = task.case.device != "cpu" and task.mode != HOST
    return Timed(
        summarize(contender.samples),
        contender.warm.host_seconds if contender.warm and host_apart else None,
        peak_extra_bytes,
        describe(
            stop, half_width(contender.samples), len(contender.samples), contender.thrown_away
        ),
        error,
        contender.thrown_away,
        code=code,
    )


def gone_wrong(error: Exception, *, sampled: bool = False) -> Untimed:
    """Return the outcome of an exception: out of memory is skipped, any other exception fails."""
    first_line = str(error).strip().partition("\n")[0]
    if memory.is_out_of_memory(error):
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()
        reason = Reason("out_of_memory", f"out of memory: {first_line}")
        return Untimed(SKIPPED, reason, sampled=sampled)
    if isinstance(error, SubjectError):
        return Untimed(FAILED, Reason(error.code, str(error)), sampled=sampled)
    text = f"raised {type(error).__name__}: {first_line}"
    return Untimed(FAILED, Reason("raised", text), sampled=sampled)


def is_too_fast(task: Task, pass_: PassName, outcome: Outcome, around: Surroundings) -> bool:
    """Tell whether a time is shorter than the limit allows."""
    if not isinstance(outcome, Timed) or not around.limit.seconds:
        return False
    gigabytes, median = task.case.floor_bytes(pass_) / 1e9, outcome.seconds.median
    gbps, limit_gbps = gigabytes / median, gigabytes / around.limit.seconds
    return is_impossible(gbps, limit_gbps, median, around.conditions)


def results(
    task: Task, pass_: PassName, outcomes: Mapping[str, Outcome], around: Surroundings
) -> list[BenchResult]:
    """Return the results of a pass, in the order in which its implementations were asked for."""
    ratios = speedups({n: o.seconds for n, o in outcomes.items() if isinstance(o, Timed)})
    built = []
    for name in task.passes[pass_]:
        outcome = outcomes[name]
        if isinstance(outcome, Timed):
            built.append(_timed(task, pass_, name, outcome, ratios[name], around))
        else:
            built.append(_untimed(task, pass_, name, outcome, around))
    return built


def _timed(
    task: Task,
    pass_: PassName,
    name: str,
    outcome: Timed,
    ratios: Mapping[str, Speedup],
    around: Surroundings,
) -> BenchResult:
    """Build the result of a time, with its share of the limit."""
    count, limit = task.case.floor_bytes(pass_), around.limit
    median = outcome.seconds.median
    gbps = count / median / 1e9
    limit_gbps = count / limit.seconds / 1e9 if limit.seconds else None
    facts = [outcome.described, around.gaps]
    if limit_gbps and is_too_fast(task, pass_, outcome, around):
        share = gbps / limit_gbps
        facts.insert(0, f"IMPOSSIBLE: {share:.0%} of the measured memory limit")
    if limit.reason:
        facts.append(f"memory limit not measured: {limit.reason}")
    if limit_gbps and around.measured_twice:
        facts.append("memory limit measured twice")
    return BenchResult(
        task.case,
        name,
        pass_,
        OK,
        "; ".join(filter(None, facts)),
        outcome.code,
        stop=around.stop,
        no_limit=limit.reason,
        seconds=outcome.seconds,
        host_seconds=outcome.host_seconds,
        default_allocator_seconds=outcome.default_allocator_seconds,
        gbps=gbps,
        limit_gbps=limit_gbps,
        speedup={other: ratio.value for other, ratio in ratios.items()},
        ratios=ratios,
        planned_extra_bytes=find_implementation(name).temporary_bytes(task.case),
        peak_extra_bytes=outcome.peak_extra_bytes,
        error=outcome.error,
        table=task.table,
        mode=task.mode,
        cache=task.cache,
        conditions=around.conditions,
    )


def _untimed(
    task: Task, pass_: PassName, name: str, outcome: Untimed, around: Surroundings
) -> BenchResult:
    return BenchResult(
        task.case,
        name,
        pass_,
        outcome.status,
        outcome.reason.text,
        outcome.reason.code,
        error=outcome.error,
        table=task.table,
        mode=task.mode,
        cache=task.cache,
        conditions=around.conditions if outcome.sampled else {},
    )
