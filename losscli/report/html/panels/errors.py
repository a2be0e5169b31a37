"""The panel of errors in ulp over size, beside those of PyTorch's own formula."""

from __future__ import annotations

import math
from collections.abc import Sequence

from losscli.report.bench_table import REFERENCE
from losscli.report.html.line_plot import Line, Point, line_plot
from losscli.report.html.measured import BYTES, Measured, binned
from losscli.report.html.over_size import Figure, plots
from losscli.report.html.panel import Panel, Row, Table
from losscli.report.html.scales import Axis, log_ticks
from losscli.report.html.svg import Plot
from losscli.report.phrases import format_ulp
from losscli.runs.records import VerifyResult

_TITLE = "Errors"
FLOOR = 0.01
"""Ulp at which the axis begins: smaller errors, and none at all, stand there."""
_LEAD = (
    "The largest error against the float64 oracle, in units in the last place (ulp) of the output. "
    "The reference is PyTorch's own formula. Errors of 0.01 ulp and less, 0 too, stand at the "
    "bottom; the large marks are the largest errors of about the same size."
)
_AXIS = Axis("error in ulp", log_ticks, log=True, low=FLOOR)


def panel(measured: Measured) -> Panel:
    """Return the panel of a bench."""
    figures = [
        Figure("ulp-loss", "Error of the loss", _AXIS, lambda r: _shown(r.error.value_ulp),
               _write, lambda _: None, highest=True),
        Figure("ulp-gradient", "Error of the gradient", _AXIS, lambda r: _shown(r.error.grad_ulp),
               _write, lambda _: None, highest=True),
    ]  # fmt: skip
    made = [plots(measured, figure) for figure in figures]
    drawn = tuple(plot for found, _ in made for plot in found)
    if not drawn:
        return Panel("errors", _TITLE, missing="Left out: the record has no errors.")
    tables = tuple(table for _, found in made for table in found)
    return Panel("errors", _TITLE, _LEAD, drawn, behind=tables)


def of_checks(results: Sequence[VerifyResult], styles: dict[str, int]) -> Panel:
    """Return the panel of a verify run: the loss beside torch's, and the gradients."""
    plots: list[Plot] = []
    tables: list[Table] = []
    for name, title, field in (
        ("ulp-loss", "Error of the loss", "value_ulp"),
        ("ulp-gradient", "Error of the gradients", "grad_ulp"),
    ):
        made = _of_checks(name, title, field, results, styles)
        plots += made[0]
        tables += made[1]
    if not plots:
        return Panel("errors", _TITLE, missing="Left out: no check measured an error.")
    return Panel("errors", _TITLE, _LEAD, tuple(plots), behind=tuple(tables))


def _of_checks(
    name: str, title: str, field: str, results: Sequence[VerifyResult], styles: dict[str, int]
) -> tuple[list[Plot], list[Table]]:
    places: dict[tuple[int, str], list[tuple[float, float]]] = {}
    for result in results:
        size = float(sum(result.case.operand_bytes.values()))
        if size <= 0:
            continue
        for label, error, style in (
            (result.implementation, result.error, styles[result.implementation]),
            (REFERENCE, result.reference_error, styles[REFERENCE]),
        ):
            ulp = _shown(getattr(error, field))
            if ulp is not None:
                places.setdefault((style, label), []).append((size, ulp))
    if not places:
        return [], []
    lines = [
        Line(style, label, _points(label, found), tuple(found), joined=False)
        for (style, label), found in sorted(places.items())
    ]
    told = "; ".join(f"{li.label} up to {_write(max(p.y for p in li.points))}" for li in lines)
    description = f"{title} over size, the largest of about the same size: {told}."
    axis = Axis("bytes of the operands", BYTES.ticks, log=True)
    plot = line_plot(name, f"{title}, over size", description, lines, axis, _AXIS)
    rows = tuple(
        Row((line.label, f"{point.x:,.0f}", _write(point.y)), line.style)
        for line in lines
        for point in line.points
    )
    headers = ("implementation", "bytes of the operands, about", "largest error")
    return [plot], [Table(title, headers, rows)]


def _points(label: str, places: Sequence[tuple[float, float]]) -> tuple[Point, ...]:
    found = binned(places, highest=True)
    return tuple(Point(x, y, f"{label}: {_write(y)} at {x:,.0f} bytes") for x, y in found)


def _shown(ulp: float | None) -> float | None:
    """Return an error that has a place on the axis."""
    return None if ulp is None or not math.isfinite(ulp) else max(ulp, FLOOR)


def _write(ulp: float) -> str:
    return f"{FLOOR} ulp or less" if ulp <= FLOOR else f"{format_ulp(ulp)} ulp"
