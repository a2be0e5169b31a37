"""Builds the results of a pass from the outcome of each implementation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from msgspec.structs import replace

from losscli.bench.energy import Energy
from losscli.bench.limit import Limit
from losscli.bench.plan import Right, Task
from losscli.bench.ratios import speedups
from losscli.bench.sampling import Contender, describe
from losscli.bench.statistics import half_width, summarize
from losscli.cases.axes import HOST, PassName
from losscli.errors import first_line
from losscli.implementations.errors import SubjectError
from losscli.machine import memory
from losscli.reasons import Code, Reason
from losscli.runs.records import (
    FAILED,
    HOST_GAPS,
    OK,
    SKIPPED,
    BenchResult,
    BenchStatus,
    Collective,
    Error,
    OfRank,
    Seconds,
    Speedup,
    Stop,
)

_NO_ERROR, _NO_LIMIT, _UNKNOWN = Error(), Limit(), Energy()


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
    waits: bool = False
    """Whether each call waits for the GPU, so that its time is the host's as well."""
    code: Code = Code.NONE
    """The code of the gate's warning."""
    energy: Energy = _UNKNOWN
    """The energy of a call, where it was asked for."""
    ranks: tuple[OfRank, ...] = ()
    """What each of several ranks measured."""


Outcome = Untimed | Timed


@dataclass(frozen=True)
class Surroundings:
    """The facts that all implementations timed side by side share."""

    limit: Limit = _NO_LIMIT
    measured_twice: bool = False
    """Whether the limit is the faster of two measurements."""
    stop: Stop | None = None
    conditions: Mapping[str, Any] = field(default_factory=dict)
    collective: Collective | None = None
    """What ranks exchange in a call."""


@dataclass(frozen=True)
class Found:
    """The outcomes of a pass in one process, or merged from several."""

    pass_: PassName
    outcomes: Mapping[str, Outcome]
    around: Surroundings
    right: Right = field(default_factory=dict)
    """The results that the gate found right so far."""

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
    code: Code = Code.NONE,
) -> Outcome:
    """Return the outcome of an implementation whose results were correct to the end.

    ``code``: of the gate's warning.
    """
    if not contender.samples:
        text = f"every sample was taken while throttled; {contender.thrown_away} discarded"
        return Untimed(SKIPPED, Reason(Code.THROTTLED, text), error, sampled=True)
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
        waits=contender.warm is not None and contender.warm.waits,
        code=code,
    )


def gone_wrong(error: Exception, *, sampled: bool = False) -> Untimed:
    """Return the outcome of an exception: out of memory is skipped, any other exception fails."""
    if memory.is_out_of_memory(error):
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()
        reason = Reason(Code.OUT_OF_MEMORY, f"out of memory: {first_line(error)}")
        return Untimed(SKIPPED, reason, sampled=sampled)
    if isinstance(error, SubjectError):
        return Untimed(FAILED, Reason(error.code, str(error)), sampled=sampled)
    text = f"raised {type(error).__name__}: {first_line(error)}"
    return Untimed(FAILED, Reason(Code.RAISED, text), sampled=sampled)


def results(
    task: Task, pass_: PassName, outcomes: Mapping[str, Outcome], around: Surroundings
) -> list[BenchResult]:
    """Return the results of a pass, in the order in which its implementations were asked for."""
    ratios = speedups({n: o.seconds for n, o in outcomes.items() if isinstance(o, Timed)})
    built = []
    for name in task.passes[pass_]:
        outcome = outcomes[name]
        result = BenchResult(
            task.case,
            name,
            pass_,
            OK,
            error=outcome.error,
            table=task.table,
            mode=task.mode,
            cache=task.cache,
            conditions=around.conditions if isinstance(outcome, Timed) or outcome.sampled else {},
        )
        if isinstance(outcome, Timed):
            planned = task.find(name).temporary_bytes(result.case)
            built.append(_timed(result, outcome, ratios[name], around, planned))
        else:
            status, reason = outcome.status, outcome.reason
            built.append(replace(result, status=status, reason=reason.text, code=reason.code))
    return built


def _timed(
    result: BenchResult,
    outcome: Timed,
    ratios: Mapping[str, Speedup],
    around: Surroundings,
    planned: int,
) -> BenchResult:
    """Return a result with its time, and the share of the limit."""
    limit, gigabytes = around.limit, result.bytes / 1e9
    timed = replace(
        result,
        code=outcome.code,
        stop=around.stop,
        no_limit=limit.reason,
        seconds=outcome.seconds,
        host_seconds=outcome.host_seconds,
        default_allocator_seconds=outcome.default_allocator_seconds,
        gbps=gigabytes / outcome.seconds.median,
        limit_gbps=gigabytes / limit.seconds if limit.seconds else None,
        speedup={other: ratio.value for other, ratio in ratios.items()},
        ratios=ratios,
        planned_extra_bytes=planned,
        peak_extra_bytes=outcome.peak_extra_bytes,
        joules=outcome.energy.joules,
        watts=outcome.energy.watts,
        no_energy=outcome.energy.reason,
        ranks=outcome.ranks,
        collective=around.collective,
    )
    facts = [outcome.described]
    if timed.impossible and timed.limit_share:
        facts.insert(0, f"IMPOSSIBLE: {timed.limit_share:.0%} of the measured limit")
    if outcome.waits:
        facts.append("each call waits for the GPU: time of the host is in it")
    if gaps := around.conditions.get(HOST_GAPS):
        facts.append(f"batches with host gaps: {gaps}")
    if limit.reason:
        facts.append(f"limit not measured: {limit.reason}")
    if limit.seconds and around.measured_twice:
        facts.append("limit measured twice")
    return replace(timed, reason="; ".join(facts))
