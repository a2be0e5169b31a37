"""The panel of all results of a bench: one row each, to be sorted and filtered."""

from __future__ import annotations

from losscli.report.bench_table import REFERENCE, SHORT_PASSES
from losscli.report.html.forest_plot import ratio
from losscli.report.html.measured import Measured
from losscli.report.html.panel import Cell, Panel, Row, State, Table, without_shared
from losscli.report.phrases import format_ulp, with_mode
from losscli.report.tables import IMPOSSIBLE
from losscli.runs.judgements import SAME, UNCLEAR
from losscli.runs.records import FAILED, OK, SKIPPED, BenchResult
from losscli.units import format_bytes, format_seconds

_HEADERS = (
    "case",
    "pass",
    "implementation",
    "median",
    "GB/s",
    "% of limit",
    "vs ref",
    "ulp",
    "extra",
)
_LEAD = (
    "The median time of a call; GB/s of the fewest bytes of the pass; their part of the memory's "
    "limit; how many times as fast as the reference (= the same, ? too few or too scattered "
    "samples to decide); the largest error in ulp; the memory that a call takes beyond inputs, "
    "loss and gradient."
)
_STATES: dict[str, State] = {FAILED: "bad", SKIPPED: "off", OK: ""}


def panel(measured: Measured, prefix: str) -> Panel:
    """Return the panel; ``prefix`` begins the ids of the run's sections."""
    rows = [_row(measured, result, prefix) for result in measured.results]
    headers, shown = without_shared(_HEADERS, rows, keep=4)
    table = Table("All results", headers, shown, words=3)
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
        gbps(result),
        Cell(IMPOSSIBLE, "bad") if result.impossible else f"{100 * share:.1f}" if share else "",
        versus(result, REFERENCE),
        ulps(result),
        "" if result.peak_extra_bytes is None else format_bytes(result.peak_extra_bytes),
    )
    return Row(cells, measured.styles[result.implementation])


def pass_of(result: BenchResult) -> str:
    """Return ``fwd``, or ``fwd+bwd host warm`` where mode and cache are not the usual."""
    words = with_mode(SHORT_PASSES[result.pass_], result.mode)
    return words if result.cache == "cold" else f"{words} {result.cache}"


def gbps(result: BenchResult) -> str:
    """Return the speed in GB/s."""
    if result.gbps is None:
        return ""
    return f"{result.gbps:.0f}" if result.gbps >= 100 else f"{result.gbps:.3g}"


def versus(result: BenchResult, other: str) -> str:
    """Return the ratio to another implementation, with a mark where it decides nothing."""
    value = result.speedup.get(other)
    if value is None:
        return ""
    found = result.ratios.get(other)
    mark = {SAME: "=", UNCLEAR: "?"}.get(found.verdict, "") if found else ""
    return mark + ratio(value)


def ulps(result: BenchResult) -> str:
    """Return the larger of the errors of the loss and the gradient."""
    found = [u for u in (result.error.value_ulp, result.error.grad_ulp) if u is not None]
    return format_ulp(max(found)) if found else ""
