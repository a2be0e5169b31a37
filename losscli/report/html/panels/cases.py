"""The panel of the cases of a bench: a section for each, with what the full table leaves out."""

from __future__ import annotations

from collections.abc import Sequence

from losscli.cases import Case
from losscli.report.bench_table import REFERENCE
from losscli.report.html.forest_plot import span
from losscli.report.html.measured import Measured
from losscli.report.html.panel import Cell, Panel, Part, Row, State, Table, without_shared
from losscli.report.html.panels.results import pass_of, versus
from losscli.report.html.panels.samples import strip
from losscli.report.html.strip_plot import reach_of, sparkline
from losscli.report.phrases import format_ulp
from losscli.runs.records import FAILED, SKIPPED, BenchResult, Seconds
from losscli.units import format_seconds

_LEAD = (
    "Each case with the spread of its samples (p20 to p80, the 95 % interval of the median, the "
    "median of each process) and the ratio of each pair."
)
_DRAWN = (
    " A tick is a sample, a line of ticks a process; the middle is the median, and all of a case "
    "have one scale."
)
_LEFT_OUT = (
    " The record has too many results to draw their samples, and to show more than p20 to p80."
)
_MOST = 400
"""Results up to which all is shown: a page is to stay below half a megabyte."""
_ONE = ("pass", "implementation", "p20-p80", "interval", "samples", "by process")


def panel(measured: Measured, prefix: str) -> Panel:
    """Return the panel; ``prefix`` begins the ids of the run's sections."""
    by_case: dict[Case, list[BenchResult]] = {}
    for result in measured.results:
        by_case.setdefault(result.case, []).append(result)
    brief = len(measured.results) > _MOST
    parts = tuple(
        _part(measured, case, found, prefix, brief=brief) for case, found in by_case.items()
    )
    lead = _LEAD + (_LEFT_OUT if brief else _DRAWN)
    return Panel("cases", "Cases", lead, parts=parts)


def _part(
    measured: Measured, case: Case, results: Sequence[BenchResult], prefix: str, *, brief: bool
) -> Part:
    timed = [result for result in results if result.seconds]
    failed = any(result.status == FAILED for result in results)
    state: State = "bad" if failed else "" if timed else "off"
    return Part(
        prefix + measured.keys[case],
        measured.names[case],
        "" if brief else _summary(measured, results),
        _table(measured, timed, brief=brief),
        _notes(results),
        state,
    )


def _table(measured: Measured, results: Sequence[BenchResult], *, brief: bool) -> Table:
    subject = measured.subjects[0] if measured.subjects else ""
    others = list(dict.fromkeys(o for r in results for o in r.speedup if o != subject))
    others.sort(key=lambda name: name != REFERENCE)
    headers = (*_ONE, *(f"vs {other}" for other in others), "host", "ulp loss", "ulp gradient")
    strips = [strip(measured, r, "") for r in results]
    reach = reach_of(strips)
    rows = [
        Row(
            (
                pass_of(r),
                r.implementation,
                *_spread(r.seconds, "" if brief else sparkline(drawn, reach), brief=brief),
                *(_interval(r, other) for other in others),
                format_seconds(r.host_seconds, 3) if r.host_seconds and not brief else "",
                "" if r.error.value_ulp is None or brief else format_ulp(r.error.value_ulp),
                "" if r.error.grad_ulp is None or brief else format_ulp(r.error.grad_ulp),
            ),
            measured.styles[r.implementation],
        )
        for r, drawn in zip(results, strips, strict=True)
        if r.seconds
    ]
    shown, kept = without_shared(headers, rows, keep=2)
    return Table("", shown, kept, words=2)


def _spread(seconds: Seconds, picture: str, *, brief: bool) -> tuple[str | Cell, ...]:
    """Return what the samples of a result come to."""
    low, high = seconds.interval or (None, None)
    processes = seconds.by_process
    middles = [format_seconds(_middle(each), 3) for each in processes]
    return (
        _span(seconds.p20, seconds.p80),
        _span(low, high) if low and high and not brief else "",
        Cell(str(len(seconds.samples)), picture=picture),
        "" if len(processes) < 2 or brief else ", ".join(middles),
    )


def _middle(samples: Sequence[float]) -> float:
    return sorted(samples)[len(samples) // 2]


def _span(low: float, high: float) -> str:
    """Return two times, with one unit where both have the same."""
    first, second = format_seconds(low), format_seconds(high)
    number, unit = first.split()
    return f"{number}-{second}" if second.endswith(f" {unit}") else f"{first}-{second}"


def _interval(result: BenchResult, other: str) -> str:
    found = result.ratios.get(other)
    value = versus(result, other)
    return f"{value} ({span(found.low, found.high)})" if found and value else value


def _summary(measured: Measured, results: Sequence[BenchResult]) -> str:
    """Return the speedups of the run's subject, and what has no time."""
    told = [
        f"{versus(r, REFERENCE)} {pass_of(r)}"
        for r in results
        if r.seconds and r.implementation in measured.subjects[:1] and versus(r, REFERENCE)
    ]
    failed = dict.fromkeys(f"{r.implementation} {r.status}" for r in results if r.status == FAILED)
    return ", ".join([*told, *failed])


def _notes(results: Sequence[BenchResult]) -> tuple[str, ...]:
    """Return why results have no time."""
    untimed = [r for r in results if r.status in (FAILED, SKIPPED)]
    return tuple(
        dict.fromkeys(f"{r.implementation}, {pass_of(r)} {r.status}: {r.reason}" for r in untimed)
    )
