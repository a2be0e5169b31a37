"""Combines the results of several processes for one pass into one result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any, get_args

from losscli.bench.limit import Limit
from losscli.bench.outcome import Found, Outcome, Surroundings, Timed, Untimed
from losscli.bench.sampling import describe
from losscli.bench.statistics import half_width_of, summarize_processes
from losscli.runs.records import HOST_GAPS, Stop

_STOPS: tuple[Stop, ...] = get_args(Stop)
"""Stop reasons in order: of several processes the latest in this order counts."""


def merge(found: Sequence[Found]) -> Found:
    """Merge the results of processes; an implementation that failed in one has no time.

    Each process runs only the implementations that have a time in all processes before it.
    """
    if len(found) == 1:
        return found[0]
    around = _surroundings([each.around for each in found])
    names = found[0].outcomes
    outcomes = {
        name: _outcome([f.outcomes[name] for f in found if name in f.outcomes], around)
        for name in names
    }
    return Found(found[0].pass_, outcomes, around)


def with_default_allocator(found: Found, other: Found) -> Found:
    """Add the medians of the process with the default allocator."""
    outcomes = dict(found.outcomes)
    for name, each in found.timed.items():
        beside = other.timed.get(name)
        if beside:
            outcomes[name] = replace(each, default_allocator_seconds=beside.seconds.median)
    return replace(found, outcomes=outcomes)


def _outcome(outcomes: Sequence[Outcome], around: Surroundings) -> Outcome:
    """Merge the outcomes of one implementation."""
    timed = [each for each in outcomes if isinstance(each, Timed)]
    untimed = next((each for each in outcomes if isinstance(each, Untimed)), None)
    if untimed:
        where = f"in process {len(timed) + 1}, correct in those before: " if timed else ""
        reason = replace(untimed.reason, text=f"{where}{untimed.reason.text}")
        return replace(untimed, reason=reason)
    seconds = summarize_processes([each.seconds.samples for each in timed])
    host = [each.host_seconds for each in timed if each.host_seconds is not None]
    peaks = [each.peak_extra_bytes for each in timed if each.peak_extra_bytes is not None]
    thrown_away, count = sum(each.thrown_away for each in timed), len(seconds.samples)
    width = half_width_of(seconds)
    return Timed(
        seconds,
        median(host) if host else None,
        max(peaks, default=None),
        describe(around.stop or "nothing left to sample", width, count, thrown_away, len(timed)),
        timed[0].error,
        thrown_away,
        waits=any(each.waits for each in timed),
        code=timed[0].code,
        energy=timed[0].energy,
    )


def _surroundings(found: Sequence[Surroundings]) -> Surroundings:
    """Merge the surroundings of all processes."""
    limits = [each.limit.seconds for each in found if each.limit.seconds]
    limit = Limit(median(limits)) if limits else found[0].limit
    stops = [each.stop for each in found if each.stop]
    return Surroundings(
        limit,
        any(each.measured_twice for each in found),
        max(stops, key=_STOPS.index, default=None),
        _conditions([each.conditions for each in found]),
    )


def _conditions(seen: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge conditions: join ranges and reasons, take the largest of numbers."""
    keys = dict.fromkeys(key for conditions in seen for key in conditions)
    return {key: _joined(key, [each[key] for each in seen if key in each]) for key in keys}


def _joined(key: str, values: Sequence[Any]) -> Any:
    known = [value for value in values if value is not None]
    if not known:
        return None
    if all(isinstance(value, list | tuple) for value in known):
        items = [item for value in known for item in value]
        if items and not isinstance(items[0], str):
            return [min(items), max(items)]
        return list(dict.fromkeys(items))
    if all(isinstance(value, int | float) for value in known):
        return sum(known) if key == HOST_GAPS else max(known)
    return known[0]
