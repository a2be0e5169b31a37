"""What is measured of a call: its time, ratios to others, errors, and what its ranks did."""

import math
from collections.abc import Mapping, Sequence
from itertools import islice
from statistics import NormalDist
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from losscli.files.record import Record
from losscli.runs.judgements import UNCLEAR, Judgement, judged

CallSeconds = Annotated[float, Meta(gt=0, lt=1e9)]
"""A time that a call can take, and that can still be divided and squared."""
Ratio = Annotated[float, Meta(gt=0, lt=1e30)]
Z95 = NormalDist().inv_cdf(0.975)
"""Standard errors on either side of a 95% interval."""


def quantile(ordered: Sequence[float], fraction: float) -> float:
    """Return the quantile of sorted samples by linear interpolation."""
    position = fraction * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


class Seconds(Record, frozen=True):
    """The distribution of one call's time."""

    median: CallSeconds
    p20: float
    p80: float
    min: float
    samples: Annotated[tuple[CallSeconds, ...], Meta(min_length=1)]
    interval: tuple[float, float] | None = None
    """Of the median, with 95%; of several processes, of the next run's median. None if too few."""
    processes: tuple[Annotated[int, Meta(ge=1)], ...] = ()
    """Numbers of samples, which are ordered by process; empty if the command's process took all."""

    @property
    def by_process(self) -> list[tuple[float, ...]]:
        """The samples of each process."""
        left = iter(self.samples)
        return [tuple(islice(left, n)) for n in self.processes or (len(self.samples),)]

    derived: ClassVar[Mapping[str, str]] = {"p80": "p95", "p95": "p99", "min": "max"}

    @property
    def p95(self) -> float:
        """1 of 20 samples takes longer."""
        return quantile(sorted(self.rounded), 0.95)

    @property
    def p99(self) -> float:
        """1 of 100 samples takes longer."""
        return quantile(sorted(self.rounded), 0.99)

    @property
    def max(self) -> float:
        """The longest sample."""
        return max(self.rounded)

    @property
    def rounded(self) -> list[float]:
        """The samples with the precision of a clock, as JSON stores them."""
        return [float(f"{sample:.6g}") for sample in self.samples]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object, with rounded samples."""
        return super().to_json() | {"samples": self.rounded}


class Speedup(Record, frozen=True):
    """The speedup over another implementation: its time over this one's."""

    value: Ratio
    low: Ratio
    high: Ratio
    """The ratio's 95% confidence interval; with fewer than six rounds, its range."""
    confident: bool = True
    """Whether there were enough rounds for an interval and a reliable verdict."""
    processes: tuple[float, ...] = ()
    """Each process's ratio, if there were several."""

    derived: ClassVar[Mapping[str, str]] = {"processes": "verdict"}

    @property
    def verdict(self) -> Judgement:
        """``faster``, ``slower``, ``same``, or ``unclear``."""
        return judged(self.low, self.high) if self.confident else UNCLEAR


class Error(Record, frozen=True):
    """The error of a result against the oracle; None if not measured."""

    value_abs: float | None = None
    value_rel: float | None = None
    value_ulp: float | None = None
    grad_ulp: float | None = None
    """The largest over the gradients' elements."""
    grad_rel: float | None = None
    """Norm of the difference over the norm of the gradient."""

    @property
    def ulp(self) -> float | None:
        """The larger error of loss and gradient."""
        return max((u for u in (self.value_ulp, self.grad_ulp) if u is not None), default=None)


class OfRank(Record, frozen=True):
    """One of the ranks that timed a call together."""

    rank: int
    median: float
    """Seconds: the median of its own samples. The slowest rank counts."""
    peak_extra_bytes: int | None = None
    """As the result's, which is the maximum over ranks."""


class Collective(Record, frozen=True):
    """What ranks exchange in a call."""

    bytes: int
    """Bytes that a rank sends to the others."""
    seconds: float
    """Median time of collectives that exchange as much and do nothing else, in the same run."""
