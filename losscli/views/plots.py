"""The plots of a bench and of a comparison: numbers over size, and ratios with their intervals."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import geometric_mean, median

from losscli.cases.case import Case
from losscli.compare.record import ComparedRow, ComparedRun
from losscli.compare.rows import mode_and_cache
from losscli.runs.grouping import grouped
from losscli.runs.judgements import SAME_WITHIN, UNCLEAR
from losscli.runs.records import BenchResult, Run, Speedup
from losscli.units import figure, format_seconds, format_size
from losscli.views.bench import LONG_PASSES, baseline_of, place
from losscli.views.compare import unusual
from losscli.views.document import Part, Plot, Point, Sentence, Series, Unit
from losscli.views.phrases import count

FEW = 4
"""Most combinations of loss, dtype and pass that have a plot each."""
FEW_ROWS = 12
"""Most cases of a pass that have a row each in a forest plot."""
MOST_ROWS = 40
"""Most rows of a comparison that its plot has."""
_ALIKE = 4.0
"""Sizes within this factor are about the same."""
_HIGHEST = 1.25
"""The largest fraction that is drawn; the table has what is higher."""
_LIMIT = (
    "How much of the peak memory bandwidth each implementation reaches: copy kernels with the same "
    "traffic, measured in the same run, are 100 %."
)
_MANY = "A line is the median of cases of about the same size."
_SPEEDUPS = (
    "The time of {} over that of each implementation. A bar is the 95 % interval of the ratio; "
    "within the grey band two times count as the same."
)
_MEANS = (
    "A row is a loss: the geometric mean of its conclusive ratios, and their range from the "
    "smallest to the largest."
)

Results = Sequence[BenchResult]


def of_bench(run: Run) -> Iterator[Part]:
    """Yield the parts with the plots of a bench; what was not measured has none."""
    results = [result for result in run.of(BenchResult) if result.seconds]
    if shares := [r for r in results if r.limit_share]:
        drawn, lead = _over_size(run, shares, "limit", "Fraction of peak bandwidth", "fraction")
        yield Part("Fraction of peak bandwidth", (Sentence(f"{_LIMIT} {lead}".strip()), *drawn))
    if results:
        drawn, lead = _over_size(run, results, "time", "Time of a call", "seconds")
        rates = [result for result in results if result.gbps]
        more, _ = _over_size(run, rates, "gbps", "GB/s", "GB/s")
        yield Part("Time and GB/s", (Sentence(lead or "The median time of a call."), *drawn, *more))
    baseline = baseline_of(results)
    if known := [r for r in results if _speedup(r, baseline)]:
        yield _speedups(known, baseline)


_VALUES: Mapping[Unit, Callable[[BenchResult], float]] = {
    "fraction": lambda r: min(r.limit_share or 0.0, _HIGHEST),
    "seconds": lambda r: r.seconds.median if r.seconds else 0.0,
    "GB/s": lambda r: r.gbps or 0.0,
}


def _over_size(
    run: Run, results: Results, name: str, title: str, unit: Unit
) -> tuple[list[Plot], str]:
    """Return plots over size, and how to read them."""
    facets = grouped(results, lambda r: f"{_without_size(r.case)}, {_pass(r)}")
    alone = len(facets) <= FEW
    groups = facets if alone else grouped(sorted(results, key=place), _pass)
    found = []
    for facet, of_facet in groups.items():
        series = tuple(
            Series(implementation, _points(own, _VALUES[unit], unit, alone=alone))
            for implementation, own in grouped(of_facet, lambda r: r.implementation).items()
        )
        limits = [(float(r.bytes), r.limit_gbps) for r in of_facet if r.limit_gbps]
        roof = tuple(_binned(limits)) if unit == "GB/s" else ()
        if unit == "fraction":
            ends = [point.x for each in series for point in each.points]
            roof = ((min(ends), 1.0), (max(ends), 1.0))
        found.append(
            Plot(
                f"{name}-{slug(facet)}",
                f"{title}, {facet}",
                "lines",
                series,
                "bytes",
                unit,
                roof,
                _cache_bytes(run),
            )
        )
    return found, "" if alone else _MANY


def _points(
    results: Results, value: Callable[[BenchResult], float], unit: Unit, *, alone: bool
) -> tuple[Point, ...]:
    places = [(float(r.bytes), value(r)) for r in results]
    if alone:
        sizes = [format_size(r.case.size) for r in results]
        pairs = sorted(zip(places, sizes, strict=True))
        return tuple(Point(f"{size}: {_written(y, unit)}", x, y) for (x, y), size in pairs)
    return tuple(Point(_written(y, unit), x, y) for x, y in _binned(places))


def _written(value: float, unit: Unit) -> str:
    if unit == "fraction":
        return f"{100 * value:.1f} %"
    return format_seconds(value) if unit == "seconds" else f"{figure(value)} GB/s"


def _binned(places: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the medians of places whose sizes are about the same."""
    bins: list[list[tuple[float, float]]] = []
    for x, y in sorted(places):
        if not bins or x >= bins[-1][0][0] * _ALIKE:
            bins.append([])
        bins[-1].append((x, y))
    return [(median(x for x, _ in each), median(y for _, y in each)) for each in bins]


def _cache_bytes(run: Run) -> int | None:
    """Return the size of the last cache of the device."""
    on_gpu = str(run.environment.get("device", "cpu")).startswith("cuda")
    size = run.environment.get("gpu_cache_bytes" if on_gpu else "cpu_cache_bytes")
    return size if isinstance(size, int) and size > 0 else None


def _speedups(results: Results, baseline: str) -> Part:
    drawn, means = [], False
    for pass_, of_pass in grouped(sorted(results, key=place), _pass).items():
        many = len({r.case for r in of_pass}) > FEW_ROWS
        means = means or many
        series = tuple(
            Series(name, _means(own, baseline) if many else _ratios(own, baseline))
            for name, own in grouped(of_pass, lambda r: r.implementation).items()
        )
        sides = ("slower", f"faster than {baseline}")
        name, title = f"speedup-{slug(pass_)}", f"Speedup over {baseline}, {pass_}"
        drawn.append(Plot(name, title, "forest", series, "ratio", band=SAME_WITHIN, sides=sides))
    lead = _SPEEDUPS.format(baseline)
    return Part("Speedups", (Sentence(f"{lead} {_MEANS}" if means else lead), *drawn))


def _speedup(result: BenchResult, baseline: str) -> Speedup | None:
    """Return the ratio to the baseline; older records have no interval."""
    found = result.ratios.get(baseline)
    if found is None and (value := result.speedup.get(baseline)):
        found = Speedup(value, value, value)
    return found if found and found.low > 0 else None


def _ratios(results: Results, baseline: str) -> tuple[Point, ...]:
    found = ((r.case.name, _speedup(r, baseline)) for r in results)
    return tuple(Point(name, s.value, low=s.low, high=s.high) for name, s in found if s)


def _means(results: Results, baseline: str) -> tuple[Point, ...]:
    """Return the mean of each loss, without ratios that are inconclusive."""
    points = []
    for loss, own in grouped(results, lambda r: r.case.loss).items():
        known = [s.value for r in own if (s := _speedup(r, baseline)) and s.verdict != UNCLEAR]
        if known:
            label = f"{loss} ({count(len(known), 'case')})"
            points.append(Point(label, geometric_mean(known), low=min(known), high=max(known)))
    return tuple(points)


def of_comparison(one: ComparedRun) -> Iterator[Plot]:
    """Yield the plot of each pass of a comparison, of the rows that changed most."""
    known = sorted(one.rows, key=lambda row: -max(row.ratio, 1 / row.ratio))[:MOST_ROWS]
    for pass_, rows in grouped(known, lambda row: row.pass_.replace("_", "+")).items():
        series = tuple(
            Series(name, tuple(_change(row) for row in own))
            for name, own in grouped(rows, lambda row: row.implementation).items()
        )
        name, title = f"changes-{slug(one.run)}-{slug(pass_)}", f"Time over the baseline's, {pass_}"
        sides = ("faster", "slower than the baseline")
        yield Plot(name, title, "forest", series, "ratio", band=one.noise, sides=sides)


def _change(row: ComparedRow) -> Point:
    label = " ".join([row.case, *unusual(row)])
    label = f"{label} ({row.table})" if row.table else label
    return Point(label, row.ratio, low=row.ratio_low, high=row.ratio_high)


def slug(words: str) -> str:
    """Return words as a part of a plot's name: ``forward-backward``."""
    return re.sub(r"[\W_]+", "-", words.lower()).strip("-")


def _pass(result: BenchResult) -> str:
    return ", ".join([LONG_PASSES[result.pass_], *mode_and_cache(result.mode, result.cache)])


def _without_size(case: Case) -> str:
    size = format_size(case.size)
    return " ".join(word for word in case.name.split() if word != size)
