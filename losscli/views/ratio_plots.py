"""The plots of ratios with intervals: speedups of a bench, changes of a comparison."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import geometric_mean
from typing import Any

from losscli.compare.gate import ComparedRow, ComparedRun
from losscli.compare.row_keys import in_table, long_name, mode_and_cache
from losscli.runs.columns import Results
from losscli.runs.grouping import grouped
from losscli.runs.judgements import SAME_WITHIN, UNCLEAR
from losscli.runs.measurements import Speedup
from losscli.runs.records import BenchResult
from losscli.views.bench import place
from losscli.views.document import Document, Part, Plot, Point, Sentence, Series
from losscli.views.phrases import count, slug

FEW_ROWS = 12
"""Most cases of a pass that have a row each in a forest plot."""
MOST_ROWS = 200
"""Most cases of a pass that have a row each in folded plots."""
MOST_CHANGED = 16
"""Most rows of a comparison that a plot has; folded plots have all rows."""
_SPEEDUPS = (
    "The time of {} over that of each implementation. A bar is the 95 % interval of the ratio; "
    "within the grey band two times count as the same."
)
_MEANS = (
    "A row is a loss: the geometric mean of its conclusive ratios, and their range from the "
    "smallest to the largest."
)


def forest(name: str, title: str, points: Mapping[str, Iterable[Point]], **more: Any) -> Plot:
    """Return a plot of ratios by implementation."""
    series = tuple(Series(each, tuple(own)) for each, own in points.items())
    return Plot(name, title, "forest", series, "ratio", **{"band": SAME_WITHIN, **more})


def speedups(every: Results, baseline: str) -> Iterator[Part]:
    """Yield the part with the speedups over a baseline, if any."""
    results = sorted((r for r in every if _speedup(r, baseline)), key=place)
    drawn, folded, means = [], [], False

    def plot(
        name: str, title: str, found: Results, of: Callable[..., Iterator[Point]], **more: str
    ) -> Plot:
        by_name = grouped(found, lambda r: r.implementation)
        points = {each: of(own, baseline, **more) for each, own in by_name.items()}
        return forest(f"speedup-{name}", title, points, sides=("slower", f"faster than {baseline}"))

    for pass_, of_pass in grouped(results, timed_pass).items():
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


def of_comparison(one: ComparedRun, name: str = "changes") -> Document:
    """Return a plot for each pass of the rows that changed most, and folded plots of all."""
    known = [row for row in one.rows if row.ratio > 0 and row.ratio_low > 0]
    changed = sorted(known, key=lambda row: -max(row.ratio, 1 / row.ratio))[:MOST_CHANGED]
    known.sort(key=lambda row: (len(row.pass_), row.pass_))
    changed.sort(key=lambda row: (len(row.pass_), row.pass_, -row.ratio))
    many = len(known) > MOST_CHANGED

    def plot(key: str, title: str, rows: Sequence[ComparedRow]) -> Plot:
        by_name = grouped(rows, lambda row: row.implementation)
        points = {each: map(_change, own) for each, own in by_name.items()}
        sides = ("faster", "slower than the baseline")
        return forest(f"{name}-{key}", title, points, band=one.noise, sides=sides)

    found: list[Plot | Part] = [
        plot(slug(pass_), f"Time over the baseline's, {long_name(pass_)}", rows)
        for pass_, rows in grouped(changed if many else known, lambda row: row.pass_).items()
    ]
    for pass_, rows in grouped(known, lambda row: row.pass_).items() if many else ():
        each = (
            plot(f"{slug(pass_)}-{slug(loss)}", f"{loss}, {long_name(pass_)}", of)
            for loss, of in grouped(rows, lambda row: row.case.partition(" ")[0]).items()
        )
        title = f"All {count(len(rows), 'row')}, {long_name(pass_)}"
        found.append(Part(title, tuple(each), folded=True))
    return tuple(found)


def _change(row: ComparedRow) -> Point:
    label = " ".join([row.case, *mode_and_cache(row.mode, row.cache)])
    return Point(in_table(label, row.table), row.ratio, low=row.ratio_low, high=row.ratio_high)


def timed_pass(result: BenchResult) -> str:
    """Return ``forward+backward, host``: a pass with an unusual mode and cache."""
    return ", ".join([long_name(result.pass_), *mode_and_cache(result.mode, result.cache)])
