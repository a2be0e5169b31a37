"""The panel of time and GB/s over size."""

from __future__ import annotations

from collections.abc import Sequence

from losscli.report.html.line_plot import Roof
from losscli.report.html.measured import Measured, binned
from losscli.report.html.over_size import Figure, plots
from losscli.report.html.panel import Panel
from losscli.report.html.scales import Axis, log_ticks, second_ticks
from losscli.runs.records import BenchResult
from losscli.units import format_seconds

_LEAD = (
    "The median time of one call, and the fewest bytes of the pass over that time. Both axes are "
    "logarithmic; GB/s are 1e9 bytes a second."
)


def panel(measured: Measured) -> Panel:
    """Return the panel."""
    if not measured.timed:
        return Panel("times", "Time and GB/s", missing="Left out: no result has a time.")
    seconds = Figure(
        "time", "Time of a call", Axis("time of a call", second_ticks, log=True),
        lambda r: r.seconds.median if r.seconds else None, format_seconds, lambda _: None,
    )  # fmt: skip
    rate = Figure(
        "gbps", "GB/s", Axis("GB/s", log_ticks, log=True), lambda r: r.gbps or None,
        lambda value: f"{value:,.0f} GB/s" if value >= 10 else f"{value:.2g} GB/s", _roof,
    )  # fmt: skip
    times, tables = plots(measured, seconds)
    rates, more = plots(measured, rate)
    return Panel("times", "Time and GB/s", _LEAD, times + rates, behind=tables + more)


def _roof(results: Sequence[BenchResult]) -> Roof | None:
    """Return the limit of the memory over size."""
    places = [(float(r.bytes), r.limit_gbps) for r in results if r.limit_gbps]
    return Roof("limit of the memory", tuple(binned(places))) if places else None
