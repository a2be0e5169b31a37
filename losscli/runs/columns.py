"""The columns of bench tables, by their names for `--columns` and configs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from losscli.runs.judgements import IMPOSSIBLE, IMPOSSIBLE_SHARE, SAME, UNCLEAR
from losscli.units import figure, format_bytes, format_joules, format_seconds, format_ulp

if TYPE_CHECKING:  # records take a while to import, and a config's error waits for none
    from losscli.runs.records import BenchResult

REFERENCE = "reference"
SMALL = 2**16
"""Largest number of elements of a case for which the host column is shown."""
WIDEST_BASELINE = 12
MARKS = {"=": "=: equally fast", "?": "?: inconclusive, too few or too noisy samples"}
"""Marks before ratios that are neither faster nor slower."""

Results = Sequence["BenchResult"]


@dataclass(frozen=True)
class Column:
    """A column: its header, its cells, and their meaning."""

    header: str
    cell: Callable[[BenchResult], str]
    meaning: str
    """The end of a sentence that starts with the header."""
    usual: Callable[[Results], bool] = lambda results: True

    @property
    def told(self) -> str:
        """The header and its meaning, on one line."""
        return f"{' '.join(self.header.split())}: {self.meaning}"


def _timed(
    value: Callable[[BenchResult], float | None], text: Callable[[float], str]
) -> Callable[[BenchResult], str]:

    def cell(result: BenchResult) -> str:
        if result.seconds is None:
            return ""
        found = value(result)
        return "-" if found is None else text(found)

    return cell


def _quantile(name: str, meaning: str) -> Column:
    cell = _timed(lambda r: getattr(r.seconds, name), format_seconds)
    return Column(name, cell, meaning, lambda results: False)


def _spread(result: BenchResult) -> str:
    if (seconds := result.seconds) is None:
        return ""
    median = format_seconds(seconds.median)
    unit = float(median.split()[0]) / seconds.median
    return f"{figure(seconds.p20 * unit)}-{figure(seconds.p80 * unit)}"


_share = _timed(
    lambda r: r.limit_share,
    lambda share: f"{100 * share:.1f}" if share < IMPOSSIBLE_SHARE else ">100",
)


def versus(baseline: str) -> Column:
    """Return the column of ratios to a baseline."""
    ratio = _timed(lambda r: r.speedup.get(baseline), lambda value: f"{figure(value)}x")
    return Column(
        "vs ref" if baseline == REFERENCE else f"vs\n{baseline[:WIDEST_BASELINE]}",
        lambda r: mark(r, baseline) + ratio(r),
        f"the speedup over {baseline}, the median ratio of the rounds",
        lambda results: any(baseline in result.speedup for result in results),
    )


COLUMNS = {
    "median": Column(
        "median",
        lambda r: format_seconds(r.seconds.median) if r.seconds else r.status,
        "the median time of a call",
    ),
    "p20-p80": Column("p20-p80", _spread, "3 of 5 samples lie within, in the unit of the median"),
    "min": _quantile("min", "the shortest sample"),
    "p95": _quantile("p95", "1 of 20 samples takes longer"),
    "p99": _quantile("p99", "1 of 100 samples takes longer"),
    "max": _quantile("max", "the longest sample"),
    "gbps": Column(
        "GB/s",
        _timed(lambda r: None if r.operations else r.gbps, figure),
        "the minimum memory traffic of the pass, divided by the median",
        lambda results: not all(r.operations for r in results),
    ),
    "tflops": Column(
        "TFLOP/s",
        _timed(lambda r: r.teraflops, lambda speed: f"{speed:.3g}"),
        "the operations of the matrix products, divided by the median",
        lambda results: any(r.operations for r in results),
    ),
    "limit": Column(
        "% of\npeak",
        lambda r: IMPOSSIBLE if r.impossible else _share(r),
        "the time of copy kernels with the same traffic, or of the bare matrix products of a fused "
        "linear loss, divided by the median; >100 where the operands fit in a cache",
        lambda results: any(r.limit_gbps for r in results),
    ),
    "exchange": Column(
        "exchange",
        _timed(lambda r: r.collective.seconds if r.collective else None, format_seconds),
        "the time of the collectives alone, with as many bytes between the ranks",
        lambda results: any(r.collective for r in results),
    ),
    "host": Column(
        "host",
        _timed(lambda r: r.host_seconds, lambda seconds: format_seconds(seconds, 3)),
        "how long a call keeps the host busy",
        lambda results: any(r.host_seconds and r.case.elements <= SMALL for r in results),
    ),
    "speedup": versus(REFERENCE),
    "ulp": Column(
        "ulp",
        _timed(lambda r: r.error.ulp, format_ulp),
        "the largest error, in units in the last place; up to 2 for a mean or sum and up to 4 for "
        "an element always pass",
    ),
    "memory": Column(
        "temp\nmem",
        _timed(lambda r: r.peak_extra_bytes, format_bytes),
        "peak temporary memory, beyond inputs, loss and gradient",
    ),
    "energy": Column(
        "energy",
        _timed(lambda r: r.joules, format_joules),
        "joules per call, by the device's counter, in calls without a pause",
        lambda results: False,
    ),
    "power": Column(
        "watts",
        _timed(lambda r: r.watts, figure),
        "that energy, divided by the time of the calls",
        lambda results: False,
    ),
}
FORMER_COLUMNS = {"extra": "memory"}
ENERGY = frozenset({"energy", "power"})
"""Columns that need an energy measurement, a second more per time."""
LEAST_IMPORTANT = ("p20-p80", "memory", "host", "exchange", "ulp", "gbps", "tflops", "limit")


def mark(result: BenchResult, other: str = REFERENCE) -> str:
    """Return the mark before a ratio; see ``MARKS``."""
    ratio = result.ratios.get(other)
    return {SAME: "=", UNCLEAR: "?"}.get(ratio.verdict, "") if ratio else ""
