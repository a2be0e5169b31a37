"""Order statistics of samples: no distribution is assumed, for times have none worth assuming.

numpy is imported on demand: reports need no bootstrap.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from losscli.results import Ratio, Seconds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[Any]

TAIL = 40
"""One interval in so many misses on either side: a confidence of 95 %."""
RESAMPLES = 1000
"""Of a bootstrap: the ends of its interval are its 25th smallest and largest ratios."""


def quantile(ordered: Sequence[float], fraction: float) -> float:
    """Return the quantile of sorted samples, linear between neighbours."""
    position = fraction * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


def summarize(samples: Sequence[float]) -> Seconds:
    """Return the distribution of samples in seconds, of which there is at least one."""
    ordered = sorted(samples)
    return Seconds(
        median=quantile(ordered, 0.5),
        p20=quantile(ordered, 0.2),
        p80=quantile(ordered, 0.8),
        min=ordered[0],
        samples=tuple(samples),
        interval=median_interval(samples),
    )


def median_interval(samples: Sequence[float]) -> tuple[float, float] | None:
    """Return a confidence interval of the median, or None where the samples are too few.

    The number of samples below the median is binomial with p = 1/2, so that two order statistics
    enclose it with a known probability, whatever the distribution. Six samples are the fewest.
    """
    rank = _rank(len(samples))
    if rank is None:
        return None
    ordered = sorted(samples)
    return ordered[rank], ordered[-1 - rank]


def half_width(samples: Sequence[float]) -> float:
    """Return half the interval of the median over the median; infinite for too few samples."""
    interval = median_interval(samples)
    if interval is None:
        return math.inf
    low, high = interval
    return (high - low) / 2 / quantile(sorted(samples), 0.5)


def paired_ratios(samples: Mapping[str, Sequence[float]]) -> dict[str, dict[str, Ratio]]:
    """Return how many times faster than each other contender each one is, by name.

    The samples were taken in rounds, one of each contender in each, and those of a round one right
    after the other. The ratio is the median of the ratios of the rounds: what slowed a whole round
    is in both of its samples and cancels, as it does not in a ratio of medians.
    """
    return {
        name: {
            other: _of_rounds([their / our for our, their in zip(own, theirs, strict=True)])
            for other, theirs in samples.items()
            if other != name
        }
        for name, own in samples.items()
    }


def _of_rounds(ratios: Sequence[float]) -> Ratio:
    """Return the median of ratios with its interval.

    Between two middle ones lies their geometric mean, so that the other way round is the inverse.
    """
    ordered = sorted(ratios)
    count = len(ordered)
    outside = _rank(count) or 0
    value = math.sqrt(ordered[(count - 1) // 2] * ordered[count // 2])
    return Ratio(value, ordered[outside], ordered[-1 - outside])


def ratio(samples: Sequence[float], baseline: Sequence[float]) -> Ratio:
    """Return how many times faster than a baseline samples are that were taken apart from it.

    The ratio is that of the medians, its interval that of a bootstrap, seeded.
    """
    value = quantile(sorted(baseline), 0.5) / quantile(sorted(samples), 0.5)
    if _rank(min(len(samples), len(baseline))) is None:
        return Ratio(value, min(baseline) / max(samples), max(baseline) / min(samples))
    ratios = _resampled_medians(baseline, 1) / _resampled_medians(samples, 0)
    outside = RESAMPLES // TAIL - 1
    ratios.partition([outside, -1 - outside])
    return Ratio(value, float(ratios[outside]), float(ratios[-1 - outside]))


def _resampled_medians(samples: Sequence[float], stream: int) -> Floats:
    """Return the medians of resamples, each in one step: it is known where in the order they lie.

    A resample draws places that are uniform; the middle one of those is distributed as an order
    statistic of uniform numbers, which is a beta distribution.
    """
    import numpy

    below, above = _middle_places(len(samples), stream)
    ordered = numpy.sort(numpy.asarray(samples))
    medians: Floats = (ordered[below] + ordered[above]) / 2
    return medians


@lru_cache(maxsize=4096)
def _middle_places(count: int, stream: int) -> tuple[Floats, Floats]:
    """Return where the one or two middle samples of each resample lie in the sorted samples."""
    import numpy

    generator = numpy.random.default_rng((stream, count))
    middle = (count + 1) // 2
    below = generator.beta(middle, count + 1 - middle, RESAMPLES)
    above = below
    if count % 2 == 0:
        above = below + (1 - below) * generator.beta(1, count - middle, RESAMPLES)
    # The largest place is the last even if a number is rounded to 1.
    low, high = (numpy.minimum((count * place).astype(int), count - 1) for place in (below, above))
    return low, high


@lru_cache(maxsize=4096)
def _rank(count: int) -> int | None:
    """Return the index, from either end, of the order statistics that bound the interval.

    The largest k with P(Binomial(count, 1/2) <= k) <= 1 / TAIL, in exact integers.
    """
    total = 2**count
    ways, below, rank = 1, 1, None
    for k in range(count):
        if below * TAIL > total:
            break
        rank = k
        ways = ways * (count - k) // (k + 1)
        below += ways
    return rank
