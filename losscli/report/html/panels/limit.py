"""The panel of the share of the memory's limit over size."""

from __future__ import annotations

from collections.abc import Sequence

from losscli.report.html.line_plot import Line, Point, Roof, small_plot
from losscli.report.html.measured import Measured, slug
from losscli.report.html.over_size import Figure, are_few, plots
from losscli.report.html.panel import Group, Panel
from losscli.report.html.scales import Axis, byte_ticks, percent_ticks
from losscli.report.html.svg import Plot
from losscli.runs.records import BenchResult

_TITLE = "Share of the limit"
_LEAD = (
    "How fast each implementation moves the bytes that its pass has to move, as a part of the "
    "speed of kernels that only move them, measured in the same run. No kernel that moves these "
    "bytes through memory exceeds 100 % by much. {}"
)
_FEW_SIZES = 2
_MOST = 1.25
"""Share at which the axis ends; what is higher is flagged in the tables."""


def panel(measured: Measured) -> Panel:
    """Return the panel."""
    shares = [r.limit_share for r in measured.timed if r.limit_share is not None]
    if not shares:
        why = dict.fromkeys(r.no_limit for r in measured.timed if r.no_limit)
        reason = "; ".join(why) or "the record has no limit of the memory"
        return Panel("limit", _TITLE, missing=f"Left out: {reason}.")
    top = min(max(1.1, *shares), _MOST)
    axis = Axis("part of the limit of the memory", percent_ticks, low=0.0, high=top)
    figure = Figure(
        "limit", _TITLE, axis, lambda r: r.limit_share, lambda share: f"{100 * share:.1f} %",
        lambda _: Roof("limit of the memory", level=1.0),
    )  # fmt: skip
    drawn, tables = plots(measured, figure)
    groups = _groups(measured)
    many = not are_few(measured.facets)
    how = (
        "A line is the median of the cases of about the same size, a dot one result."
        if many
        else ""
    )
    return Panel("limit", _TITLE, _LEAD.format(how), drawn, groups if many else (), behind=tables)


def _groups(measured: Measured) -> tuple[Group, ...]:
    """Return a small plot for each facet of several sizes, grouped by pass."""
    found: dict[str, list[Plot]] = {}
    for name, results in measured.facets.items():
        known = [r for r in results if r.limit_share is not None]
        if len({r.bytes for r in known}) < _FEW_SIZES:
            continue
        title, _, how = name.partition(", ")
        found.setdefault(how, []).append(_small(measured, name, title, known))
    return tuple(
        Group(f"{len(plots)} plots, {how}: one for each loss, dtype and layout", tuple(plots), True)
        for how, plots in found.items()
    )


def _small(measured: Measured, name: str, title: str, results: Sequence[BenchResult]) -> Plot:
    lines = []
    for implementation, of_it in measured.by_name(results).items():
        points = sorted((float(r.bytes), min(r.limit_share or 0.0, _MOST)) for r in of_it)
        style = measured.styles[implementation]
        lines.append(Line(style, implementation, tuple(Point(*place) for place in points)))
    told = "; ".join(
        f"{line.label} {', '.join(f'{100 * p.y:.0f} %' for p in line.points)}" for line in lines
    )
    axis = Axis("", percent_ticks, low=0.0, high=1.1)
    x = Axis("", byte_ticks, log=True)
    return small_plot(
        f"limit-{slug(name)}", title, f"Percent of the limit: {told}.", lines, x, axis, 1.0
    )
