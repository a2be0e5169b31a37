"""Quantiles of samples, and intervals over several processes from a random-effects model.

Each process yields the log of a median and its standard error. A process measures the true value
plus its own effect (memory addresses, allocator state) plus sampling noise; the standard deviation
of the logs contains both. Student's quantile accounts for few processes; the factor sqrt(2) makes
the interval hold for the next run, not only for the mean.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist, stdev

Z95 = NormalDist().inv_cdf(0.975)
"""Standard errors on either side of a 95% interval."""
_T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""Student's 95% quantiles for 1 to 10 degrees of freedom."""


def quantile(ordered: Sequence[float], fraction: float) -> float:
    """Return the quantile of sorted samples by linear interpolation."""
    position = fraction * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


def student_quantile(freedom: int) -> float:
    """Return Student's 95% quantile; beyond the table, by a series with an error below 0.003."""
    if freedom <= len(_T95):
        return _T95[freedom - 1]
    first = (Z95**3 + Z95) / 4
    second = (5 * Z95**5 + 16 * Z95**3 + 3 * Z95) / 96
    return Z95 + first / freedom + second / freedom**2


def next_run_half_width(logs: Sequence[float], errors: Sequence[float]) -> float:
    """Return the 95% half-width for the next run's mean log, from the processes' logs and errors.

    It is at least that of samples within processes: few processes may agree by luck.
    """
    count = len(logs)
    within = Z95 * math.hypot(*errors) / count
    between = student_quantile(count - 1) * stdev(logs) / math.sqrt(count)
    return math.sqrt(2) * max(within, between)
