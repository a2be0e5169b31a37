"""Plots of a figure over size: one plot a facet where there are few, else all facets together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from losscli.report.html.line_plot import Line, Point, Region, Roof, line_plot
from losscli.report.html.measured import BYTES, Measured, binned, slug
from losscli.report.html.panel import Row, Table
from losscli.report.html.scales import Axis
from losscli.report.html.svg import Plot
from losscli.runs.records import BenchResult
from losscli.units import format_bytes, format_size

FEW = 4
"""Most facets that each have a plot of their own."""
_MOST_SIZES = 40
"""Most sizes of a facet whose results are all marked."""


@dataclass(frozen=True)
class Figure:
    """A figure of a result: its name, its axis, and how it is read and written."""

    name: str
    title: str
    axis: Axis
    value: Callable[[BenchResult], float | None]
    write: Callable[[float], str]
    roof: Callable[[Sequence[BenchResult]], Roof | None]
    highest: bool = False
    """Whether lines show the largest value of a size, not the median."""


def plots(measured: Measured, figure: Figure) -> tuple[tuple[Plot, ...], tuple[Table, ...]]:
    """Return the plots of a figure over size, and the table of what their lines show."""
    facets, ways = (
        {name: known for name, group in groups.items() if (known := _known(figure, group))}
        for groups in (measured.facets, measured.ways)
    )
    alone = are_few(facets)
    made = [
        _plot(measured, figure, name, group, alone)
        for name, group in (facets if alone else ways).items()
    ]
    rows = [row for _, found in made for row in found]
    headers = ("plot", "implementation", "size", figure.title)
    table = Table(f"{figure.title}: the points of the lines", headers, tuple(rows), words=3)
    return tuple(plot for plot, _ in made), (table,) if rows else ()


def are_few(facets: Mapping[str, Sequence[BenchResult]]) -> bool:
    """Tell whether each facet has a plot of its own, in which each result has a mark."""
    most = max((len({r.bytes for r in group}) for group in facets.values()), default=0)
    return len(facets) <= FEW and most <= _MOST_SIZES


def _known(figure: Figure, results: Sequence[BenchResult]) -> list[BenchResult]:
    return [result for result in results if figure.value(result) is not None]


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
        lines.append(
            Line(
                style,
                implementation,
                points,
                () if alone else tuple(places),
                alone or not figure.highest,
            )
        )
        rows += [
            Row((name, implementation, size, figure.write(y)), style) for (_, y), size in drawn
        ]
    size = measured.cache_bytes
    region = Region(f"fits in the cache ({format_bytes(size)})", size) if size else None
    plot = line_plot(
        f"{figure.name}-{slug(name)}",
        f"{figure.title}, {name}",
        _description(figure, lines, alone),
        lines,
        BYTES,
        figure.axis,
        roof=figure.roof(group),
        region=region,
    )
    return plot, rows


def _description(figure: Figure, lines: Sequence[Line], alone: bool) -> str:
    """Say in words what a plot shows: the range of each line."""
    which = "the largest" if figure.highest else "the median"
    how = "over size" if alone else f"over size, {which} of all cases of about the same size"
    told = []
    for line in lines:
        values = [point.y for point in line.points]
        low, high = figure.write(min(values)), figure.write(max(values))
        span = low if low == high else f"{low} to {high}"
        told.append(f"{line.label} {span}")
    return f"{figure.title} {how}: {'; '.join(told)}."
