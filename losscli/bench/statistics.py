"""Order statistics of samples and of interleaved ratios, by the model of docs/measuring.md."""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from statistics import stdev

from msgspec.structs import replace

from losscli.runs.measurements import Z95, Seconds, Speedup, quantile

_T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""Student's 95% quantiles for 1 to 10 degrees of freedom."""
TAIL = 40
"""One interval in TAIL misses on either side: 95 % confidence."""


def summarize(samples: Sequence[float]) -> Seconds:
    """Return the distribution of one or more samples in seconds."""
    ordered = sorted(samples)
    median, p20, p80 = (quantile(ordered, part) for part in (0.5, 0.2, 0.8))
    return Seconds(median, p20, p80, ordered[0], tuple(samples), median_interval(samples))


def summarize_processes(taken: Sequence[Sequence[float]]) -> Seconds:
    """Return the distribution over processes, with the spread within and between them."""
    seconds = summarize([sample for samples in taken for sample in samples])
    logs = [math.log(quantile(sorted(samples), 0.5)) for samples in taken]
    # Few samples have no interval: their whole span stands for it.
    spans = [median_interval(samples) or (min(samples), max(samples)) for samples in taken]
    half = next_run_half_width(logs, [_log_error(*span) for span in spans])
    interval = seconds.median * math.exp(-half), seconds.median * math.exp(half)
    return replace(seconds, interval=interval, processes=tuple(map(len, taken)))


def student_quantile(freedom: int) -> float:
    """Return Student's 95% quantile; beyond the table, by a series with an error below 0.003."""
    if freedom <= len(_T95):
        return _T95[freedom - 1]
    first = (Z95**3 + Z95) / 4
    second = (5 * Z95**5 + 16 * Z95**3 + 3 * Z95) / 96
    return Z95 + first / freedom + second / freedom**2


def next_run_half_width(logs: Sequence[float], errors: Sequence[float]) -> float:
    """Return the 95% half-width for the next run's mean log, from the processes' logs and errors.

    It is at least that of samples within processes: few processes may agree by luck. The factor
    sqrt(2) makes it hold for the next run, not only for the mean.
    """
    count = len(logs)
    within = Z95 * math.hypot(*errors) / count
    between = student_quantile(count - 1) * stdev(logs) / math.sqrt(count)
    return math.sqrt(2) * max(within, between)


def half_width(seconds: Seconds) -> float:
    """Return half the interval over the median; infinite without an interval."""
    if seconds.interval is None:
        return math.inf
    low, high = seconds.interval
    return (high - low) / 2 / seconds.median


def median_interval(samples: Sequence[float]) -> tuple[float, float] | None:
    """Return order statistics that enclose the median, or None for fewer than six samples."""
    if (index := _rank(len(samples))) is None:
        return None
    ordered = sorted(samples)
    return ordered[index], ordered[-1 - index]


def _log_error(low: float, high: float) -> float:
    return math.log(high / low) / 2 / Z95


@lru_cache(maxsize=4096)
def _rank(count: int) -> int | None:
    """Return the index, from either end, of the order statistics that bound the interval.

    The number of samples below the median is binomial, whatever the distribution. So it is the
    largest k with P(Binomial(count, 1/2) <= k) <= 1 / TAIL, in exact integers.
    """
    total = 2**count
    ways, below, found = 1, 1, None
    for k in range(count):
        if below * TAIL > total:
            break
        found = k
        ways = ways * (count - k) // (k + 1)
        below += ways
    return found


def speedups(timed: Mapping[str, Seconds]) -> dict[str, dict[str, Speedup]]:
    """Return each one's speedup over each other, by name: the geometric mean over processes."""
    taken = {name: seconds.by_process for name, seconds in timed.items()}
    count = min(map(len, taken.values()), default=0)
    found = [paired_ratios({name: each[n] for name, each in taken.items()}) for n in range(count)]
    if count < 2:
        return found[0] if found else {}
    return {
        name: {
            other: _of_processes([each[name][other] for each in found], sum(map(len, taken[name])))
            for other in others
        }
        for name, others in found[0].items()
    }


def _of_processes(found: Sequence[Speedup], rounds: int) -> Speedup:
    """Return the ratio over processes; ``rounds`` counts those of all processes."""
    logs = [math.log(ratio.value) for ratio in found]
    half = next_run_half_width(logs, [_log_error(ratio.low, ratio.high) for ratio in found])
    log = math.fsum(logs) / len(logs)
    values = tuple(ratio.value for ratio in found)
    low, value, high = (math.exp(log + step) for step in (-half, 0.0, half))
    return Speedup(value, low, high, _rank(rounds) is not None, values)


def paired_ratios(samples: Mapping[str, Sequence[float]]) -> dict[str, dict[str, Speedup]]:
    """Return each one's speedup over each other, by name; what slows a whole round cancels."""
    return {
        name: {
            other: _of_rounds([their / our for our, their in zip(own, theirs, strict=True)])
            for other, theirs in samples.items()
            if other != name
        }
        for name, own in samples.items()
    }


def _of_rounds(ratios: Sequence[float]) -> Speedup:
    ordered = sorted(ratios)
    count = len(ordered)
    index = _rank(count)
    outside = index or 0
    value = math.sqrt(ordered[(count - 1) // 2] * ordered[count // 2])
    return Speedup(value, ordered[outside], ordered[-1 - outside], index is not None)
