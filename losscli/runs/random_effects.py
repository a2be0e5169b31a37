"""The confidence interval of a figure of several processes, from how they and their samples differ.

Each process yields the log of a median, or of a median of ratios, and its standard error. The model
is a random-effects model with equal weights: a process measures the true value, plus the effect of
the process (memory addresses, the state of its allocator), plus the noise of its samples. The
standard deviation of the logs contains both effects. A Student quantile accounts for the small
number of processes, and the root of 2 makes the interval one for the next run of as many processes,
not only for the mean.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

Z95 = NormalDist().inv_cdf(0.975)
"""Standard errors that an interval of 95 % reaches on either side."""
_T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""Standard errors of a 95 % interval by Student's distribution, for 1 degree of freedom to 10."""


def student_quantile(freedom: int) -> float:
    """Return how many standard errors an interval of 95 % reaches, by degrees of freedom.

    Beyond the table it is the beginning of a series, which is off by less than three thousandths.
    """
    if freedom <= len(_T95):
        return _T95[freedom - 1]
    first = (Z95**3 + Z95) / 4
    second = (5 * Z95**5 + 16 * Z95**3 + 3 * Z95) / 96
    return Z95 + first / freedom + second / freedom**2


def deviation(logs: Sequence[float]) -> float:
    """Return the standard deviation between processes, of which there are at least two."""
    mean = sum(logs) / len(logs)
    return math.sqrt(sum((log - mean) ** 2 for log in logs) / (len(logs) - 1))


def next_run_half_width(logs: Sequence[float], errors: Sequence[float]) -> float:
    """Return how far the mean of the next run's logs lies from this one's, with 95 % confidence.

    It is never less than the same from the samples within the processes, because a few processes
    may agree by luck.

    Args:
        logs: what each process measured; at least two.
        errors: the standard error of each, from its own samples.
    """
    count = len(logs)
    within = Z95 * math.hypot(*errors) / count
    between = student_quantile(count - 1) * deviation(logs) / math.sqrt(count)
    return math.sqrt(2) * max(within, between)
