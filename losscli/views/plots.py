"""The plots of a record: values over size, ratios with their intervals, samples by process."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import geometric_mean, median

from losscli.cases.case import Case
from losscli.compare.record import ComparedRow, ComparedRun
from losscli.compare.rows import mode_and_cache
from losscli.runs.columns import REFERENCE
from losscli.runs.grouping import grouped
from losscli.runs.judgements import SAME_WITHIN, UNCLEAR
from losscli.runs.records import BenchResult, Run, Seconds, Speedup, VerifyResult
from losscli.units import figure, format_seconds, format_size, format_ulp
from losscli.views.bench import LONG_PASSES, baseline_of, case_names, place
from losscli.views.compare import unusual
from losscli.views.document import Document, Kind, Part, Plot, Point, Sentence, Series, Unit
from losscli.views.phrases import count

FEW = 4
"""Most combinations of loss, dtype and pass that have a plot each."""
MOST_SIZES = 40
"""Most sizes of such a combination."""
FEW_ROWS = 12
"""Most cases of a pass that have a row each in a forest plot."""
MOST_ROWS = 200
"""Most cases of a pass that have a row each in folded plots."""
MOST_CHANGED = 16
"""Most rows of a comparison that a plot has; folded plots have all rows."""
MOST_STRIPS = 8
"""Most results whose samples are drawn."""
LEAST_ULP = 0.01
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
_SAMPLES = (
    "Each tick is a sample, each line of ticks a process, drawn by the distance from the median of "
    "the result; the shaded part reaches from p20 to p80. Shown are the {} of {} results whose "
    "samples spread most. {}"
)
_ERRORS = (
    "The largest error against the float64 oracle, in units in the last place (ulp) of the output. "
    "Errors of 0.01 ulp and less are at the bottom. Of cases of about the same size, the mark is "
    "the largest error."
)

Results = Sequence[BenchResult]


@dataclass(frozen=True)
class _Curve:
    name: str
    """Begins the names of its plots."""
    title: str
    unit: Unit
    value: Callable[[BenchResult], float | None]


_FRACTION = _Curve(
    *("limit", "Fraction of peak bandwidth", "fraction"),
    lambda r: min(r.limit_share, _HIGHEST) if r.limit_share else None,
)
_TIME = _Curve(
    *("time", "Time of a call", "seconds"), lambda r: r.seconds.median if r.seconds else None
)
_RATE = _Curve("gbps", "GB/s", "GB/s", lambda r: r.gbps or None)
_LOSS = _Curve("ulp-loss", "Error of the loss", "ulp", lambda r: _on_axis(r.error.value_ulp))
_GRADIENT = _Curve(
    "ulp-gradient", "Error of the gradient", "ulp", lambda r: _on_axis(r.error.grad_ulp)
)


def of_bench(run: Run) -> Iterator[Part]:
    """Yield the parts with the plots of a bench; what was not measured has none."""
    timed = (result for result in run.of(BenchResult) if result.seconds)
    rows = grouped(timed, lambda r: (r.case, r.pass_, r.mode, r.cache, r.implementation))
    results = [first for first, *_ in rows.values()]
    drawn, many = _over_size(run, results, _FRACTION)
    if drawn:
        lead = Sentence(f"{_LIMIT} {_MANY}" if many else _LIMIT)
        yield Part("Fraction of peak bandwidth", (lead, *drawn, *many))
    if results:
        drawn, many = _over_size(run, results, _TIME)
        more, _ = _over_size(run, results, _RATE)
        lead = Sentence(_MANY if many else "The median time of a call.")
        yield Part("Time and GB/s", (lead, *drawn, *more))
    baseline = baseline_of(results)
    if known := [r for r in results if _speedup(r, baseline)]:
        yield _speedups(known, baseline)
    yield from _samples(results)
    errors = [plot for curve in (_LOSS, _GRADIENT) for plot in _over_size(run, results, curve)[0]]
    if errors:
        yield Part("Errors", (Sentence(_ERRORS), *errors))


def _over_size(run: Run, results: Results, curve: _Curve) -> tuple[list[Plot], list[Part]]:
    """Return plots over size; with many combinations, folded parts with a plot of each too."""
    known = [result for result in results if curve.value(result) is not None]
    facets = grouped(known, lambda r: f"{_without_size(r.case)}, {_pass(r)}")
    most = max((len({r.bytes for r in found}) for found in facets.values()), default=0)
    if len(facets) <= FEW and most <= MOST_SIZES:
        return [_curves(run, name, of, curve, alone=True) for name, of in facets.items()], []
    passes = grouped(sorted(known, key=place), _pass)
    folded: dict[str, list[Plot]] = {name: [] for name in passes}
    for name, found in facets.items():
        if len({result.bytes for result in found}) > 1:
            folded[_pass(found[0])].append(_curves(run, name, found, curve, alone=True))
    return [_curves(run, name, of, curve, alone=False) for name, of in passes.items()], [
        Part(f"{name}: a plot for each loss, dtype and layout", tuple(each), folded=True)
        for name, each in folded.items()
    ]


def _curves(run: Run, facet: str, results: Results, curve: _Curve, *, alone: bool) -> Plot:
    unit = curve.unit
    series = tuple(
        Series(implementation, _points(own, curve, alone=alone))
        for implementation, own in grouped(results, lambda r: r.implementation).items()
    )
    limits = [(float(r.bytes), r.limit_gbps) for r in results if r.limit_gbps]
    roof = tuple(_binned(limits)) if unit == "GB/s" else ()
    if unit == "fraction":
        ends = [point.x for each in series for point in each.points]
        roof = ((min(ends), 1.0), (max(ends), 1.0))
    name, title = f"{curve.name}-{slug(facet)}", f"{curve.title}, {facet}"
    kind: Kind = "lines" if alone or unit != "ulp" else "marks"
    return Plot(name, title, kind, series, "bytes", unit, roof, _cache_bytes(run))


def _points(results: Results, curve: _Curve, *, alone: bool) -> tuple[Point, ...]:
    places = [(float(r.bytes), curve.value(r) or 0.0) for r in results]
    if alone:
        sizes = [format_size(r.case.size) for r in results]
        pairs = sorted(zip(places, sizes, strict=True))
        return tuple(Point(f"{size}: {_written(y, curve.unit)}", x, y) for (x, y), size in pairs)
    return _medians(places, curve.unit)


def _medians(places: Iterable[tuple[float, float]], unit: Unit) -> tuple[Point, ...]:
    found = _binned(places, max if unit == "ulp" else median)
    return tuple(Point(_written(y, unit), x, y) for x, y in found)


def _written(value: float, unit: Unit) -> str:
    if unit == "fraction":
        return f"{100 * value:.1f} %"
    if unit == "ulp":
        return f"{LEAST_ULP} ulp or less" if value <= LEAST_ULP else f"{format_ulp(value)} ulp"
    return format_seconds(value) if unit == "seconds" else f"{figure(value)} GB/s"


def _binned(
    places: Iterable[tuple[float, float]], of_bin: Callable[[list[float]], float] = median
) -> list[tuple[float, float]]:
    """Return the medians, or the largest, of places whose sizes are about the same."""
    bins: list[list[tuple[float, float]]] = []
    for x, y in sorted(places):
        if not bins or x >= bins[-1][0][0] * _ALIKE:
            bins.append([])
        bins[-1].append((x, y))
    return [(median(x for x, _ in each), of_bin([y for _, y in each])) for each in bins]


def _cache_bytes(run: Run) -> int | None:
    on_gpu = str(run.environment.get("device", "cpu")).startswith("cuda")
    size = run.environment.get("gpu_cache_bytes" if on_gpu else "cpu_cache_bytes")
    return size if isinstance(size, int) and size > 0 else None


def _on_axis(ulp: float | None) -> float | None:
    return None if ulp is None or not math.isfinite(ulp) else max(ulp, LEAST_ULP)


def of_verify(run: Run) -> Iterator[Part]:
    """Yield the part with the errors of a verify run, compared with those of PyTorch."""
    drawn = []
    for name, title, field in (
        ("ulp-loss", "Error of the loss, over size", "value_ulp"),
        ("ulp-gradient", "Error of the gradients, over size", "grad_ulp"),
    ):
        places: dict[str, list[tuple[float, float]]] = {}
        for result in run.of(VerifyResult):
            size = float(sum(result.case.operand_bytes.values()))
            own = (result.implementation, result.error), (REFERENCE, result.reference_error)
            for implementation, error in own:
                if size > 0 and (ulp := _on_axis(getattr(error, field))) is not None:
                    places.setdefault(implementation, []).append((size, ulp))
        if places:
            series = tuple(Series(each, _medians(of, "ulp")) for each, of in places.items())
            drawn.append(Plot(name, title, "marks", series, "operand bytes", "ulp"))
    if drawn:
        yield Part("Errors", (Sentence(_ERRORS), *drawn))


def _samples(results: Results) -> Iterator[Part]:
    """Yield the part with the samples of the results that spread most."""
    known = [(r, r.seconds) for r in results if r.seconds and len(r.seconds.samples) > 1]
    known.sort(key=lambda pair: (pair[1].p80 - pair[1].p20) / pair[1].median, reverse=True)
    names, shown = case_names(results), known[:MOST_STRIPS]
    half = (len(shown) + 1) // 2
    halves = [each for each in (shown[:half], shown[half:]) if each]
    drawn = []
    for number, pairs in enumerate(halves, 1):
        series = tuple(
            Series(r.implementation, _ticks(f"{names[r.case]}, {_pass(r)}", seconds))
            for r, seconds in pairs
        )
        title = f"Samples that spread most, {number} of {len(halves)}"
        drawn.append(Plot(f"samples-{number}", title, "strips", series, "fraction"))
    if drawn:
        counts = {len(seconds.by_process) for _, seconds in known}
        few, most = min(counts), max(counts)
        processes = f"{few} to {most} processes" if few < most else f"{few} processes"
        if most == 1:
            processes = "one process: the spread between processes is unknown"
        lead = Sentence(_SAMPLES.format(len(shown), len(known), f"Each result has {processes}."))
        yield Part("Samples by process", (lead, *drawn))


def _ticks(name: str, seconds: Seconds) -> tuple[Point, ...]:
    middle = seconds.median
    low, high = seconds.p20 / middle - 1, seconds.p80 / middle - 1
    label = f"{name}: {format_seconds(middle)}"
    return tuple(
        Point(label, sample / middle - 1, index, low, high)
        for index, each in enumerate(seconds.by_process)
        for sample in each
        if math.isfinite(sample)
    )


def _speedups(results: Results, baseline: str) -> Part:
    drawn, folded, means = [], [], False
    sides = ("slower", f"faster than {baseline}")

    def forest(name: str, title: str, found: Results, points: _Ratios) -> Plot:
        series = tuple(
            Series(implementation, points(own, baseline))
            for implementation, own in grouped(found, lambda r: r.implementation).items()
        )
        name = f"speedup-{name}"
        return Plot(name, title, "forest", series, "ratio", band=SAME_WITHIN, sides=sides)

    for pass_, of_pass in grouped(sorted(results, key=place), _pass).items():
        number = len({r.case for r in of_pass})
        many = number > FEW_ROWS
        means = means or many
        title = f"Speedup over {baseline}, {pass_}"
        drawn.append(forest(slug(pass_), title, of_pass, _means if many else _ratios))
        if FEW_ROWS < number <= MOST_ROWS:
            losses = grouped(of_pass, lambda r: r.case.loss)
            each = (
                forest(f"{slug(pass_)}-{slug(loss)}", f"{loss}, {pass_}", own, _ratios)
                for loss, own in losses.items()
            )
            folded.append(Part(f"All {number} cases, {pass_}", tuple(each), folded=True))
    lead = _SPEEDUPS.format(baseline)
    return Part("Speedups", (Sentence(f"{lead} {_MEANS}" if means else lead), *drawn, *folded))


_Ratios = Callable[[Results, str], tuple[Point, ...]]


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


def of_comparison(one: ComparedRun, name: str = "changes") -> Document:
    """Return a plot for each pass of the rows that changed most; folded, plots of all rows."""
    known = [row for row in one.rows if row.ratio > 0 and row.ratio_low > 0]
    changed = sorted(known, key=lambda row: -max(row.ratio, 1 / row.ratio))[:MOST_CHANGED]
    known.sort(key=lambda row: (len(row.pass_), row.pass_))
    changed.sort(key=lambda row: (len(row.pass_), row.pass_, -row.ratio))
    many = len(known) > MOST_CHANGED

    def forest(key: str, title: str, rows: Sequence[ComparedRow]) -> Plot:
        series = tuple(
            Series(implementation, tuple(_change(row) for row in own))
            for implementation, own in grouped(rows, lambda row: row.implementation).items()
        )
        sides = ("faster", "slower than the baseline")
        key = f"{name}-{key}"
        return Plot(key, title, "forest", series, "ratio", band=one.noise, sides=sides)

    found: list[Plot | Part] = [
        forest(slug(pass_), f"Time over the baseline's, {pass_}", rows)
        for pass_, rows in grouped(changed if many else known, _long).items()
    ]
    for pass_, rows in grouped(known, _long).items() if many else ():
        losses = grouped(rows, lambda row: row.case.partition(" ")[0])
        each = (
            forest(f"{slug(pass_)}-{slug(loss)}", f"{loss}, {pass_}", of)
            for loss, of in losses.items()
        )
        found.append(Part(f"All {count(len(rows), 'row')}, {pass_}", tuple(each), folded=True))
    return tuple(found)


def _long(row: ComparedRow) -> str:
    return row.pass_.replace("_", "+")


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
