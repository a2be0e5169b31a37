"""The panel of errors in ulp over size, beside those of PyTorch's own formula."""

from __future__ import annotations

import math
from collections.abc import Sequence

from losscli.render.html.line_plot import Line, Point, line_plot
from losscli.render.html.measured import BYTES, Measured, binned
from losscli.render.html.panel import Panel, Row, Table
from losscli.render.html.panels.sizes import Figure, plots
from losscli.render.html.scales import Axis, log_ticks
from losscli.render.html.svg import Plot
from losscli.runs.columns import REFERENCE
from losscli.runs.records import Error, VerifyResult
from losscli.units import format_ulp

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
    loss = Figure(
        "ulp-loss", "Error of the loss", _AXIS, lambda r: _on_axis(r.error.value_ulp), _write,
        highest=True,
    )  # fmt: skip
    gradient = Figure(
        "ulp-gradient", "Error of the gradient", _AXIS, lambda r: _on_axis(r.error.grad_ulp),
        _write, highest=True,
    )  # fmt: skip
    drawn, tables = plots(measured, loss, gradient)
    if not drawn:
        return Panel("errors", _TITLE, missing="Left out: the record has no errors.")
    return Panel("errors", _TITLE, _LEAD, drawn, behind=tables)


def of_checks(results: Sequence[VerifyResult], styles: dict[str, int]) -> Panel:
    """Return the panel of a verify run: the loss beside torch's, and the gradients."""
    made = [
        _of_checks("ulp-loss", "Error of the loss", "value_ulp", results, styles),
        _of_checks("ulp-gradient", "Error of the gradients", "grad_ulp", results, styles),
    ]
    drawn = [each for each in made if each]
    if not drawn:
        return Panel("errors", _TITLE, missing="Left out: no check measured an error.")
    found, tables = zip(*drawn, strict=True)
    return Panel("errors", _TITLE, _LEAD, found, behind=tables)


def _of_checks(
    name: str, title: str, field: str, results: Sequence[VerifyResult], styles: dict[str, int]
) -> tuple[Plot, Table] | None:
    """Return the plot and table of an error; None where no check measured it."""
    places: dict[tuple[int, str], list[tuple[float, float]]] = {}

    def add(label: str, error: Error, size: float) -> None:
        ulp = _on_axis(getattr(error, field))
        if ulp is not None:
            places.setdefault((styles[label], label), []).append((size, ulp))

    for result in results:
        size = float(sum(result.case.operand_bytes.values()))
        if size > 0:
            add(result.implementation, result.error, size)
            add(REFERENCE, result.reference_error, size)
    if not places:
        return None
    lines = [
        Line(style, label, _points(label, found), tuple(found), joined=False)
        for (style, label), found in sorted(places.items())
    ]
    largest = "; ".join(f"{li.label} up to {_write(max(p.y for p in li.points))}" for li in lines)
    description = f"{title} over size, the largest of about the same size: {largest}."
    axis = Axis("bytes of the operands", BYTES.ticks, log=True)
    rows = tuple(
        Row((line.label, f"{point.x:,.0f}", _write(point.y)), line.style)
        for line in lines
        for point in line.points
    )
    headers = ("implementation", "bytes of the operands, about", "largest error")
    plot = line_plot(name, f"{title}, over size", description, lines, axis, _AXIS)
    return plot, Table(title, headers, rows)


def _points(label: str, places: Sequence[tuple[float, float]]) -> tuple[Point, ...]:
    found = binned(places, highest=True)
    return tuple(Point(x, y, f"{label}: {_write(y)} at {x:,.0f} bytes") for x, y in found)


def _on_axis(ulp: float | None) -> float | None:
    return None if ulp is None or not math.isfinite(ulp) else max(ulp, FLOOR)


def _write(ulp: float) -> str:
    return f"{FLOOR} ulp or less" if ulp <= FLOOR else f"{format_ulp(ulp)} ulp"
