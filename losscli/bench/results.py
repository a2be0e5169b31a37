"""Build the results of a pass, from one process or several."""

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, get_args

import torch
from msgspec.structs import replace

from losscli.bench.plan import Task
from losscli.bench.statistics import half_width, speedups, summarize, summarize_processes
from losscli.cases.axes import PassName
from losscli.errors import first_line
from losscli.implementations.errors import SubjectError
from losscli.machine import memory
from losscli.reasons import Code, Reason
from losscli.runs.records import FAILED, HOST_GAPS, OK, SKIPPED, BenchResult, BenchStatus, Stop


def untimed(
    task: Task,
    pass_: PassName,
    name: str,
    why: Reason | Exception,
    status: BenchStatus = FAILED,
    **fields: Any,
) -> BenchResult:
    """Return a result without a time; out of memory counts as skipped."""
    if isinstance(why, SubjectError):
        status, why = FAILED, Reason(why.code, str(why))
    elif isinstance(why, Exception) and memory.is_out_of_memory(why):
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()
        status, why = SKIPPED, Reason(Code.OUT_OF_MEMORY, f"out of memory: {first_line(why)}")
    elif isinstance(why, Exception):
        text = f"raised {type(why).__name__}: {first_line(why)}"
        status, why = FAILED, Reason(Code.RAISED, text)
    common = {"table": task.table, "mode": task.mode, "cache": task.cache, **fields}
    return BenchResult(task.case, name, pass_, status, why.text, why.code, **common)


def timed(
    task: Task, pass_: PassName, name: str, samples: Sequence[float], **fields: Any
) -> BenchResult:
    """Return the result of an implementation that was right before and after timing."""
    common = {"table": task.table, "mode": task.mode, "cache": task.cache, **fields}
    planned = task.find(name).temporary_bytes(task.case)
    result = BenchResult(task.case, name, pass_, OK, planned_extra_bytes=planned, **common)
    seconds = summarize(samples)
    return replace(result, seconds=seconds, gbps=result.bytes / 1e9 / seconds.median)


def merge(found: Sequence[BenchResult]) -> BenchResult:
    """Merge the processes' results of one implementation and pass; all must have a time."""
    first = found[0]
    if len(found) == 1:
        return first
    right = [each for each in found if each.seconds]
    if lost := next((each for each in found if not each.seconds), None):
        where = f"in process {len(right) + 1}, correct in those before: " if right else ""
        return replace(lost, reason=f"{where}{lost.reason}")
    seconds = summarize_processes([each.seconds.samples for each in right if each.seconds])
    host = [each.host_seconds for each in right if each.host_seconds is not None]
    peaks = [each.peak_extra_bytes for each in right if each.peak_extra_bytes is not None]
    limits = [each.limit_gbps for each in right if each.limit_gbps]
    return replace(
        first,
        seconds=seconds,
        gbps=first.bytes / 1e9 / seconds.median,
        host_seconds=median(host) if host else None,
        peak_extra_bytes=max(peaks, default=None),
        limit_gbps=median(limits) if limits else None,
        no_limit="" if limits else first.no_limit,
        limit_repeated=any(each.limit_repeated for each in right),
        discarded=sum(each.discarded for each in right),
        waits=any(each.waits for each in right),
        # The last of the processes' reasons counts, in the order of the type.
        stop=max((e.stop for e in right if e.stop), key=get_args(Stop).index, default=None),
        conditions=_conditions([each.conditions for each in right]),
    )


def compared(results: Sequence[BenchResult]) -> list[BenchResult]:
    """Return the results of one pass with their ratios and explanations."""
    found = speedups({r.implementation: r.seconds for r in results if r.seconds})
    return [
        replace(
            each,
            reason=explain(each),
            ratios=(ratios := found[each.implementation]),
            speedup={other: ratio.value for other, ratio in ratios.items()},
        )
        if each.seconds
        else each
        for each in results
    ]


def explain(result: BenchResult) -> str:
    """Explain why sampling stopped, how well the median is known, and what else matters."""
    seconds = result.seconds
    assert seconds
    width, processes = half_width(seconds), len(seconds.processes)
    facts = [f"{len(seconds.samples)} samples" + f" of {processes} processes" * (processes > 1)]
    if result.discarded:
        facts.append(f"{result.discarded} discarded while throttled")
    known = f"median within {width:.2%}" if math.isfinite(width) else "too few for an interval"
    notes = [f"{result.stop or 'nothing left to sample'}: {', '.join([*facts, known])}"]
    if result.impossible and result.limit_share:
        notes.insert(0, f"IMPOSSIBLE: {result.limit_share:.0%} of the measured limit")
    if result.waits:
        notes.append("each call waits for the GPU: time of the host is in it")
    if gaps := result.conditions.get(HOST_GAPS):
        notes.append(f"batches with host gaps: {gaps}")
    if result.no_limit:
        notes.append(f"limit not measured: {result.no_limit}")
    if result.limit_gbps and result.limit_repeated:
        notes.append("limit measured twice")
    return "; ".join(notes)


def _conditions(seen: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge conditions: join ranges and reasons, take the largest number."""
    keys = dict.fromkeys(key for conditions in seen for key in conditions)
    return {key: _joined(key, [each[key] for each in seen if key in each]) for key in keys}


def _joined(key: str, values: Sequence[Any]) -> Any:
    if not (known := [value for value in values if value is not None]):
        return None
    if all(isinstance(value, list | tuple) for value in known):
        items = [item for value in known for item in value]
        is_range = items and not isinstance(items[0], str)
        return [min(items), max(items)] if is_range else list(dict.fromkeys(items))
    if all(isinstance(value, int | float) for value in known):
        return sum(known) if key == HOST_GAPS else max(known)
    return known[0]
