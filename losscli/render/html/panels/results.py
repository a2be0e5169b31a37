"""The panels of a bench's results: one row each, and a section for each case with the rest."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median_high

from losscli.cases.case import Case
from losscli.render.html.forest_plot import interval, ratio
from losscli.render.html.measured import Measured, pass_of
from losscli.render.html.panel import Cell, Panel, Part, Row, State, Table, telling_table
from losscli.render.html.panels.samples import strip
from losscli.render.html.strip_plot import reach_of, sparkline
from losscli.runs.columns import REFERENCE, mark
from losscli.runs.grouping import grouped
from losscli.runs.judgements import IMPOSSIBLE
from losscli.runs.records import FAILED, OK, SKIPPED, BenchResult, Seconds
from losscli.units import format_bytes, format_seconds, format_ulp

_HEADERS = (
    *("case", "pass", "implementation", "median", "GB/s", "% of limit"),
    *("vs ref", "ulp", "extra"),
)
_LEAD = (
    "The median time of a call; GB/s of the fewest bytes of the pass; their part of the memory's "
    "limit; how many times as fast as the reference (= the same, ? too few or too scattered "
    "samples to decide); the largest error in ulp; the memory that a call takes beyond inputs, "
    "loss and gradient."
)
_STATES: dict[str, State] = {FAILED: "bad", SKIPPED: "off", OK: ""}


_CASES_LEAD = (
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


def results(measured: Measured, prefix: str) -> Panel:
    """Return the panel of all results; ``prefix`` begins the ids of the run's sections."""
    rows = [_row(measured, result, prefix) for result in measured.results]
    table = telling_table("All results", _HEADERS, rows, keep=4, words=3)
    return Panel("results", "All results", _LEAD, tables=(table,))


def _row(measured: Measured, result: BenchResult, prefix: str) -> Row:
    case = Cell(measured.names[result.case], link=prefix + measured.keys[result.case])
    share = result.limit_share
    cells: tuple[str | Cell, ...] = (
        case,
        pass_of(result),
        result.implementation,
        format_seconds(result.seconds.median)
        if result.seconds
        else Cell(result.status, _STATES[result.status]),
        _gbps(result),
        Cell(IMPOSSIBLE, "bad") if result.impossible else f"{100 * share:.1f}" if share else "",
        _versus(result, REFERENCE),
        format_ulp(result.error.ulp),
        "" if result.peak_extra_bytes is None else format_bytes(result.peak_extra_bytes),
    )
    return Row(cells, measured.styles[result.implementation])


def _gbps(result: BenchResult) -> str:
    if result.gbps is None:
        return ""
    return f"{result.gbps:.0f}" if result.gbps >= 100 else f"{result.gbps:.3g}"


def _versus(result: BenchResult, other: str) -> str:
    """Return the ratio to another implementation, with a mark where it decides nothing."""
    value = result.speedup.get(other)
    return "" if value is None else mark(result, other) + ratio(value)


def cases(measured: Measured, prefix: str) -> Panel:
    """Return the panel of the cases; ``prefix`` begins the ids of the run's sections."""
    brief = len(measured.results) > _MOST
    parts = tuple(
        _part(measured, case, found, prefix, brief=brief)
        for case, found in grouped(measured.results, lambda result: result.case).items()
    )
    lead = _CASES_LEAD + (_LEFT_OUT if brief else _DRAWN)
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
        _reasons(results),
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
                *_samples(r.seconds, "" if brief else sparkline(drawn, reach), brief=brief),
                *(_ratio_cell(r, other) for other in others),
                format_seconds(r.host_seconds, 3) if r.host_seconds and not brief else "",
                "" if brief else format_ulp(r.error.value_ulp),
                "" if brief else format_ulp(r.error.grad_ulp),
            ),
            measured.styles[r.implementation],
        )
        for r, drawn in zip(results, strips, strict=True)
        if r.seconds
    ]
    return telling_table("", headers, rows, keep=2)


def _samples(seconds: Seconds, picture: str, *, brief: bool) -> tuple[str | Cell, ...]:
    low, high = seconds.interval or (None, None)
    processes = seconds.by_process
    middles = [format_seconds(median_high(each), 3) for each in processes]
    return (
        _range(seconds.p20, seconds.p80),
        _range(low, high) if low and high and not brief else "",
        Cell(str(len(seconds.samples)), picture=picture),
        "" if len(processes) < 2 or brief else ", ".join(middles),
    )


def _range(low: float, high: float) -> str:
    """Return two times, with one unit where both have the same."""
    first, second = format_seconds(low), format_seconds(high)
    number, unit = first.split()
    return f"{number}-{second}" if second.endswith(f" {unit}") else f"{first}-{second}"


def _ratio_cell(result: BenchResult, other: str) -> str:
    found = result.ratios.get(other)
    value = _versus(result, other)
    return f"{value} ({interval(found.low, found.high)})" if found and value else value


def _summary(measured: Measured, results: Sequence[BenchResult]) -> str:
    """Return the speedups of the run's subject, and what has no time."""
    ratios = [
        f"{_versus(r, REFERENCE)} {pass_of(r)}"
        for r in results
        if r.seconds and r.implementation in measured.subjects[:1] and _versus(r, REFERENCE)
    ]
    failed = dict.fromkeys(f"{r.implementation} {r.status}" for r in results if r.status == FAILED)
    return ", ".join([*ratios, *failed])


def _reasons(results: Sequence[BenchResult]) -> tuple[str, ...]:
    untimed = [r for r in results if r.status in (FAILED, SKIPPED)]
    return tuple(
        dict.fromkeys(f"{r.implementation}, {pass_of(r)} {r.status}: {r.reason}" for r in untimed)
    )
