"""The plots of a run: values over size, speedups with intervals, and samples by process."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from statistics import geometric_mean, median

from losscli.compare.row_keys import long_name, mode_and_cache
from losscli.runs.columns import REFERENCE, Results
from losscli.runs.grouping import grouped
from losscli.runs.judgements import UNCLEAR
from losscli.runs.measurements import Seconds, Speedup
from losscli.runs.records import BenchResult, Run, VerifyResult
from losscli.units import figure, format_seconds, format_size, format_ulp
from losscli.views.bench import baseline_of, case_names, place
from losscli.views.document import Kind, Part, Plot, Point, Sentence, Series, Unit
from losscli.views.phrases import count, slug

FEW_FACETS, MOST_SIZES = 4, 40
"""Combinations of loss, dtype and pass that have a plot each, and their sizes at most."""
MOST_STRIPS = 8
"""Most results whose samples are drawn."""
MOST_ROWS = 200
"""Most cases of a pass that have a row each in folded plots."""
FEW_ROWS = 12
"""Most cases of a pass that have a row each in a forest plot."""
LEAST_ULP = 0.01
_MANY = "A line is the median of cases of about the same size."
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
_SPEEDUPS = (
    "The time of {} over that of each implementation. A bar is the 95 % interval of the ratio; "
    "within the grey band two times count as the same."
)
_MEANS = (
    "A row is a loss: the geometric mean of its conclusive ratios, and their range from the "
    "smallest to the largest."
)


@dataclass(frozen=True)
class _Curve:
    name: str
    """Begins the names of its plots."""
    title: str
    unit: Unit
    value: Callable[[BenchResult], float | None]


_SHARES = {
    "How much of the peak memory bandwidth each implementation reaches: copy kernels with the same "
    "traffic, measured in the same run, are 100 %.": _Curve(
        *("limit", "Fraction of peak bandwidth", "fraction"),
        lambda r: None if r.operations else _share(r),
    ),
    "How close each implementation comes to the speed of its bare matrix products, measured in the "
    "same run: 100 %.": _Curve(
        *("limit", "Fraction of the matrix products' speed", "products"),
        lambda r: _share(r) if r.operations else None,
    ),
}
_TIMES = (
    _Curve("time", "Time of a call", "seconds", lambda r: r.seconds.median if r.seconds else None),
    _Curve("gbps", "GB/s", "GB/s", lambda r: r.gbps or None),
)
_ULPS = (
    _Curve("ulp-loss", "Error of the loss", "ulp", lambda r: _on_axis(r.error.value_ulp)),
    _Curve("ulp-gradient", "Error of the gradient", "ulp", lambda r: _on_axis(r.error.grad_ulp)),
)


def of_bench(run: Run) -> Iterator[Part]:
    """Yield the parts with a bench's plots."""
    timed = (result for result in run.of(BenchResult) if result.seconds)
    rows = grouped(timed, lambda r: (r.case, r.pass_, r.mode, r.cache, r.implementation))
    results = [first for first, *_ in rows.values()]
    for said, curve in _SHARES.items():
        drawn, many = _over_size(run, results, curve)
        if drawn:
            lead = Sentence(f"{said} {_MANY}" if many else said)
            yield Part(curve.title, (lead, *drawn, *many))
    if results:
        (drawn, many), (more, _) = (_over_size(run, results, curve) for curve in _TIMES)
        lead = Sentence(_MANY if many else "The median time of a call.")
        yield Part("Time and GB/s", (lead, *drawn, *more))
    yield from _speedups(results, baseline_of(results))
    yield from _samples(results)
    if errors := [plot for curve in _ULPS for plot in _over_size(run, results, curve)[0]]:
        yield Part("Errors", (Sentence(_ERRORS), *errors))


def _over_size(run: Run, results: Results, curve: _Curve) -> tuple[list[Plot], list[Part]]:
    """Return plots over size; for many combinations, also folded parts with a plot of each."""
    known = [result for result in results if curve.value(result) is not None]
    facets = grouped(known, _facet)
    most = max((len({r.bytes for r in found}) for found in facets.values()), default=0)
    if len(facets) <= FEW_FACETS and most <= MOST_SIZES:
        return [_curves(run, name, of, curve, alone=True) for name, of in facets.items()], []
    passes = grouped(sorted(known, key=place), _timed_pass)
    folded: dict[str, list[Plot]] = {name: [] for name in passes}
    for name, found in facets.items():
        if len({result.bytes for result in found}) > 1:
            pass_ = _timed_pass(found[0])
            of_axis = passes[pass_]
            folded[pass_].append(_curves(run, name, found, curve, alone=True, of_axis=of_axis))
    return [_curves(run, name, of, curve, alone=False) for name, of in passes.items()], [
        Part(f"{name}: a plot for each loss, dtype and layout", tuple(each), folded=True)
        for name, each in folded.items()
    ]


def _curves(
    run: Run, facet: str, results: Results, curve: _Curve, *, alone: bool, of_axis: Results = ()
) -> Plot:
    """Return a plot; ``of_axis``: the results of all plots with the same axis."""
    unit = curve.unit
    by_name = grouped(results, lambda r: r.implementation).items()
    series = tuple(Series(each, _points(own, curve, alone=alone)) for each, own in by_name)
    limits = [(float(r.bytes), r.limit_gbps) for r in results if r.limit_gbps]
    roof = tuple(_binned(limits)) if unit == "GB/s" else ()
    if unit in ("fraction", "products"):
        ends = [float(result.bytes) for result in of_axis]
        ends = ends or [point.x for each in series for point in each.points]
        roof = ((min(ends), 1.0), (max(ends), 1.0))
    # Of several losses, some may be limited by memory and some by products in one pass.
    named = unit if unit == "products" and not alone else curve.name
    name, title = f"{named}-{slug(facet)}", f"{curve.title}, {facet}"
    kind: Kind = "lines" if alone or unit != "ulp" else "marks"
    return Plot(name, title, kind, series, "bytes", unit, roof, _cache_bytes(run))


def _points(results: Results, curve: _Curve, *, alone: bool) -> tuple[Point, ...]:
    places = [(float(r.bytes), curve.value(r) or 0.0, format_size(r.case.size)) for r in results]
    if not alone:
        return _medians([(x, y) for x, y, _ in places], curve.unit)
    return tuple(Point(f"{size}: {_written(y, curve.unit)}", x, y) for x, y, size in sorted(places))


def _medians(places: Iterable[tuple[float, float]], unit: Unit) -> tuple[Point, ...]:
    found = _binned(places, max if unit == "ulp" else median)
    return tuple(Point(_written(y, unit), x, y) for x, y in found)


def _written(value: float, unit: Unit) -> str:
    if unit in ("fraction", "products"):
        return f"{100 * value:.1f} %"
    if unit == "ulp":
        return f"{LEAST_ULP} ulp or less" if value <= LEAST_ULP else f"{format_ulp(value)} ulp"
    return format_seconds(value) if unit == "seconds" else f"{figure(value)} GB/s"


def _binned(
    places: Iterable[tuple[float, float]], of_bin: Callable[[list[float]], float] = median
) -> list[tuple[float, float]]:
    """Return the medians, or the largest, of places whose sizes are within a factor of four."""
    bins: list[list[tuple[float, float]]] = []
    for x, y in sorted(places):
        if not bins or x >= bins[-1][0][0] * 4:
            bins.append([])
        bins[-1].append((x, y))
    return [(median(x for x, _ in each), of_bin([y for _, y in each])) for each in bins]


def _share(result: BenchResult) -> float | None:
    # The table has what is higher.
    return min(result.limit_share, 1.25) if result.limit_share else None


def _cache_bytes(run: Run) -> int | None:
    on_gpu = str(run.environment.get("device", "cpu")).startswith("cuda")
    size = run.environment.get("gpu_cache_bytes" if on_gpu else "cpu_cache_bytes")
    return size if isinstance(size, int) and size > 0 else None


def _on_axis(ulp: float | None) -> float | None:
    return None if ulp is None or not math.isfinite(ulp) else max(ulp, LEAST_ULP)


def _speedups(every: Results, baseline: str) -> Iterator[Part]:
    results = sorted((r for r in every if _speedup(r, baseline)), key=place)
    drawn, folded, means = [], [], False

    def plot(
        name: str, title: str, found: Results, of: Callable[..., Iterator[Point]], **more: str
    ) -> Plot:
        by_name = grouped(found, lambda r: r.implementation)
        points = {each: of(own, baseline, **more) for each, own in by_name.items()}
        return Plot.forest(
            f"speedup-{name}", title, points, sides=("slower", f"faster than {baseline}")
        )

    for pass_, of_pass in grouped(results, _timed_pass).items():
        number = len({r.case for r in of_pass})
        many = number > FEW_ROWS
        means = means or many
        title = f"Speedup over {baseline}, {pass_}"
        drawn.append(plot(slug(pass_), title, of_pass, _means if many else _ratios))
        if FEW_ROWS < number <= MOST_ROWS:
            each = (
                plot(f"{slug(pass_)}-{slug(loss)}", f"{loss}, {pass_}", own, _ratios, named=loss)
                for loss, own in grouped(of_pass, lambda r: r.case.loss).items()
            )
            folded.append(Part(f"All {number} cases, {pass_}", tuple(each), folded=True))
    if drawn:
        lead = _SPEEDUPS.format(baseline) + f" {_MEANS}" * means
        yield Part("Speedups", (Sentence(lead), *drawn, *folded))


def _speedup(result: BenchResult, baseline: str) -> Speedup | None:
    """Return the ratio to the baseline; older records have no interval."""
    found = result.ratios.get(baseline)
    if found is None and (value := result.speedup.get(baseline)):
        found = Speedup(value, value, value)
    return found if found and found.low > 0 else None


def _ratios(results: Results, baseline: str, named: str = "") -> Iterator[Point]:
    """Yield the ratios of cases, without the loss that the title has ``named``."""
    for r in results:
        if found := _speedup(r, baseline):
            label = r.case.name.removeprefix(f"{named} ")
            yield Point(label, found.value, low=found.low, high=found.high)


def _means(results: Results, baseline: str) -> Iterator[Point]:
    for loss, own in grouped(results, lambda r: r.case.loss).items():
        known = [s.value for r in own if (s := _speedup(r, baseline)) and s.verdict != UNCLEAR]
        if known:
            label = f"{loss} ({count(len(known), 'case')})"
            yield Point(label, geometric_mean(known), low=min(known), high=max(known))


def of_verify(run: Run) -> Iterator[Part]:
    """Yield the part with a verify run's errors and PyTorch's."""
    drawn = []
    loss = ("ulp-loss", "Error of the loss, over size", "value_ulp")
    gradients = ("ulp-gradient", "Error of the gradients, over size", "grad_ulp")
    for name, title, field in (loss, gradients):
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
    known = [(r, r.seconds) for r in results if r.seconds and len(r.seconds.samples) > 1]
    known.sort(key=lambda pair: (pair[1].p80 - pair[1].p20) / pair[1].median, reverse=True)
    names, shown, drawn = case_names(results), known[:MOST_STRIPS], []
    half = (len(shown) + 1) // 2
    halves = [each for each in (shown[:half], shown[half:]) if each]
    for number, pairs in enumerate(halves, 1):
        series = tuple(
            Series(r.implementation, _ticks(f"{names[r.case]}, {_timed_pass(r)}", seconds))
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


def _facet(result: BenchResult) -> str:
    size = format_size(result.case.size)
    words = (word for word in result.case.name.split() if word != size)
    return f"{' '.join(words)}, {_timed_pass(result)}"


def _timed_pass(result: BenchResult) -> str:
    """Return ``forward+backward, host``: a pass with an unusual mode and cache."""
    return ", ".join([long_name(result.pass_), *mode_and_cache(result.mode, result.cache)])
