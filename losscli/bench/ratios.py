"""The ratio of the times of two implementations that were sampled side by side, with its interval.

:mod:`losscli.runs.random_effects` combines the ratios of several processes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from losscli.bench.statistics import log_error, rank
from losscli.runs.random_effects import next_run_half_width
from losscli.runs.records import Seconds, Speedup


def speedups(timed: Mapping[str, Seconds]) -> dict[str, dict[str, Speedup]]:
    """Return how many times faster than each other contender each one is, by name.

    All were timed side by side. Of several processes, it is the geometric mean.
    """
    taken = {name: seconds.by_process for name, seconds in timed.items()}
    count = min(map(len, taken.values()), default=0)
    found = [paired_ratios({name: each[n] for name, each in taken.items()}) for n in range(count)]
    if count < 2:
        return found[0] if found else {}
    rounds = {name: sum(map(len, samples)) for name, samples in taken.items()}
    return {
        name: {
            other: _of_processes([each[name][other] for each in found], rounds[name])
            for other in others
        }
        for name, others in found[0].items()
    }


def _of_processes(found: Sequence[Speedup], rounds: int) -> Speedup:
    """Return the ratio of several processes; ``rounds`` is the number of rounds of all of them."""
    logs = [math.log(ratio.value) for ratio in found]
    half = next_run_half_width(logs, [log_error(ratio.low, ratio.high) for ratio in found])
    log = math.fsum(logs) / len(logs)
    confident = rank(rounds) is not None
    values = tuple(ratio.value for ratio in found)
    low, value, high = (math.exp(log + step) for step in (-half, 0.0, half))
    return Speedup(value, low, high, confident, values)


def paired_ratios(samples: Mapping[str, Sequence[float]]) -> dict[str, dict[str, Speedup]]:
    """Return how many times faster than each other contender each one is, by name.

    It is the median of the ratios of the rounds, each with one sample of each contender: what
    slowed a whole round cancels, as it does not in a ratio of medians.
    """
    return {
        name: {
            other: _of_rounds([their / our for our, their in zip(own, theirs, strict=True)])
            for other, theirs in samples.items()
            if other != name
        }
        for name, own in samples.items()
    }


def _of_rounds(ratios: Sequence[float]) -> Speedup:
    """Return the median of ratios with its interval; the geometric mean of two middle ratios."""
    ordered = sorted(ratios)
    count = len(ordered)
    index = rank(count)
    outside = index or 0
    value = math.sqrt(ordered[(count - 1) // 2] * ordered[count // 2])
    return Speedup(value, ordered[outside], ordered[-1 - outside], index is not None)
