"""The panels of figures over size: time and GB/s, and the share of the memory's limit.

A figure has one plot a facet where there are few, else all facets together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from losscli.render.html.line_plot import Line, Point, Roof, line_plot, small_plot
from losscli.render.html.measured import BYTES, Measured, binned, slug
from losscli.render.html.panel import Group, Panel, Row, Table
from losscli.render.html.scales import Axis, byte_ticks, log_ticks, percent_ticks, second_ticks
from losscli.render.html.svg import Plot
from losscli.runs.records import BenchResult
from losscli.units import format_bytes, format_seconds, format_size

FEW = 4
"""Most facets that each have a plot of their own."""
_MOST_SIZES = 40
"""Most sizes of a facet whose results are all marked."""
_TIMES_LEAD = (
    "The median time of one call, and the fewest bytes of the pass over that time. Both axes are "
    "logarithmic; GB/s are 1e9 bytes a second."
)
_LIMIT = "Share of the limit"
_LIMIT_LEAD = (
    "How fast each implementation moves the bytes that its pass has to move, as a part of the "
    "speed of kernels that only move them, measured in the same run. No kernel that moves these "
    "bytes through memory exceeds 100 % by much. {}"
)
_MANY = "A line is the median of the cases of about the same size, a dot one result."
_FEW_SIZES = 2
_HIGHEST_SHARE = 1.25
"""Share at which the axis ends; what is higher is flagged in the tables."""


@dataclass(frozen=True)
class Figure:
    """A figure of a result: its name, its axis, and how it is read and written."""

    name: str
    title: str
    axis: Axis
    value: Callable[[BenchResult], float | None]
    write: Callable[[float], str]
    roof: Callable[[Sequence[BenchResult]], Roof | None] = lambda _: None
    highest: bool = False
    """Whether lines show the largest value of a size, not the median."""


def times(measured: Measured) -> Panel:
    """Return the panel of time and GB/s."""
    if not measured.timed:
        return Panel("times", "Time and GB/s", missing="Left out: no result has a time.")
    seconds = Figure(
        "time", "Time of a call", Axis("time of a call", second_ticks, log=True),
        lambda r: r.seconds.median if r.seconds else None, format_seconds,
    )  # fmt: skip
    rate = Figure(
        "gbps", "GB/s", Axis("GB/s", log_ticks, log=True), lambda r: r.gbps or None,
        lambda value: f"{value:,.0f} GB/s" if value >= 10 else f"{value:.2g} GB/s", _roof,
    )  # fmt: skip
    drawn, tables = plots(measured, seconds, rate)
    return Panel("times", "Time and GB/s", _TIMES_LEAD, drawn, behind=tables)


def _roof(results: Sequence[BenchResult]) -> Roof | None:
    places = [(float(r.bytes), r.limit_gbps) for r in results if r.limit_gbps]
    return Roof("limit of the memory", tuple(binned(places))) if places else None


def limit(measured: Measured) -> Panel:
    """Return the panel of the share of the memory's limit."""
    shares = [r.limit_share for r in measured.timed if r.limit_share is not None]
    if not shares:
        why = dict.fromkeys(r.no_limit for r in measured.timed if r.no_limit)
        reason = "; ".join(why) or "the record has no limit of the memory"
        return Panel("limit", _LIMIT, missing=f"Left out: {reason}.")
    top = min(max(1.1, *shares), _HIGHEST_SHARE)
    axis = Axis("part of the limit of the memory", percent_ticks, low=0.0, high=top)
    figure = Figure(
        "limit", _LIMIT, axis, lambda r: r.limit_share, lambda share: f"{100 * share:.1f} %",
        lambda _: Roof("limit of the memory", level=1.0),
    )  # fmt: skip
    drawn, tables = plots(measured, figure)
    many = not _are_few(measured.facets)
    groups = _small_plots(measured) if many else ()
    return Panel(
        "limit", _LIMIT, _LIMIT_LEAD.format(_MANY if many else ""), drawn, groups, behind=tables
    )


def _small_plots(measured: Measured) -> tuple[Group, ...]:
    """Return a small plot for each facet of several sizes, grouped by pass."""
    found: dict[str, list[Plot]] = {}
    for name, results in measured.facets.items():
        known = [r for r in results if r.limit_share is not None]
        if len({r.bytes for r in known}) >= _FEW_SIZES:
            title, _, how = name.partition(", ")
            found.setdefault(how, []).append(_small_plot(measured, name, title, known))
    return tuple(
        Group(f"{len(small)} plots, {how}: one for each loss, dtype and layout", tuple(small), True)
        for how, small in found.items()
    )


def _small_plot(measured: Measured, name: str, title: str, results: Sequence[BenchResult]) -> Plot:
    lines = []
    for implementation, of_it in measured.by_name(results).items():
        points = sorted((float(r.bytes), min(r.limit_share or 0.0, _HIGHEST_SHARE)) for r in of_it)
        style = measured.styles[implementation]
        lines.append(Line(style, implementation, tuple(Point(*point) for point in points)))
    shares = "; ".join(
        f"{line.label} {', '.join(f'{100 * p.y:.0f} %' for p in line.points)}" for line in lines
    )
    y, x = Axis("", percent_ticks, low=0.0, high=1.1), Axis("", byte_ticks, log=True)
    description = f"Percent of the limit: {shares}."
    return small_plot(f"limit-{slug(name)}", title, description, lines, x, y, 1.0)


def plots(measured: Measured, *figures: Figure) -> tuple[tuple[Plot, ...], tuple[Table, ...]]:
    """Return the plots of figures over size, and for each a table of what their lines show."""
    drawn: list[Plot] = []
    tables: list[Table] = []
    for figure in figures:
        facets, ways = (
            {
                name: known
                for name, group in groups.items()
                if (known := [result for result in group if figure.value(result) is not None])
            }
            for groups in (measured.facets, measured.by_pass)
        )
        alone = _are_few(facets)
        rows: list[Row] = []
        for name, group in (facets if alone else ways).items():
            plot, points = _plot(measured, figure, name, group, alone)
            drawn.append(plot)
            rows += points
        if rows:
            headers = ("plot", "implementation", "size", figure.title)
            caption = f"{figure.title}: the points of the lines"
            tables.append(Table(caption, headers, tuple(rows), words=3))
    return tuple(drawn), tuple(tables)


def _are_few(facets: Mapping[str, Sequence[BenchResult]]) -> bool:
    """Tell whether each facet has a plot of its own, in which each result has a mark."""
    most = max((len({r.bytes for r in group}) for group in facets.values()), default=0)
    return len(facets) <= FEW and most <= _MOST_SIZES


def _plot(
    measured: Measured, figure: Figure, name: str, group: Sequence[BenchResult], alone: bool
) -> tuple[Plot, list[Row]]:
    """Draw one plot; ``alone`` where its results differ in size and implementation only."""
    lines = []
    rows = []
    for implementation, results in measured.by_name(group).items():
        places = [(float(r.bytes), figure.value(r) or 0.0) for r in results]
        style = measured.styles[implementation]
        if alone:
            sizes = [format_size(r.case.size) for r in results]
            drawn = sorted(zip(places, sizes, strict=True))
        else:
            reduced = binned(places, highest=figure.highest)
            drawn = [(place, f"about {format_bytes(place[0])}") for place in reduced]
        points = tuple(
            Point(x, y, f"{implementation}, {size}: {figure.write(y)}") for (x, y), size in drawn
        )
        cloud = () if alone else tuple(places)
        lines.append(Line(style, implementation, points, cloud, alone or not figure.highest))
        rows += [
            Row((name, implementation, size, figure.write(y)), style) for (_, y), size in drawn
        ]
    plot = line_plot(
        f"{figure.name}-{slug(name)}",
        f"{figure.title}, {name}",
        _description(figure, lines, alone),
        lines,
        BYTES,
        figure.axis,
        roof=figure.roof(group),
        cache_bytes=measured.cache_bytes,
    )
    return plot, rows


def _description(figure: Figure, lines: Sequence[Line], alone: bool) -> str:
    """Say in words what a plot shows: the range of each line."""
    which = "the largest" if figure.highest else "the median"
    how = "over size" if alone else f"over size, {which} of all cases of about the same size"
    ranges = []
    for line in lines:
        values = [point.y for point in line.points]
        low, high = figure.write(min(values)), figure.write(max(values))
        ranges.append(f"{line.label} {low if low == high else f'{low} to {high}'}")
    return f"{figure.title} {how}: {'; '.join(ranges)}."
