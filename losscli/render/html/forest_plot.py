"""Draws ratios with their intervals, one below the other, beside a dashed line at 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from losscli.render.html import svg
from losscli.render.html.line_plot import shape_at
from losscli.render.html.scales import LETTER, Axis, Scale, ratio_ticks, short_exponent, spaced
from losscli.render.html.svg import Plot

WIDTH = 440
_PLOT_RIGHT = 318
_TOP, _BOTTOM = 34, 24
_HIDDEN = 4
"""Pixels up to which the mark hides an interval."""
_LABEL, _MARK, _GAP = 15, 14, 5
"""Heights of a row's label, of each of its marks, and of the space below it."""


@dataclass(frozen=True)
class Mark:
    """A ratio and its interval."""

    style: int
    label: str
    value: float
    low: float
    high: float
    note: str = ""
    """Written behind the figures: ``same`` or ``?``."""


@dataclass(frozen=True)
class ForestRow:
    """What the ratios are of, and the ratio of each implementation."""

    label: str
    marks: tuple[Mark, ...]


@dataclass(frozen=True)
class Baseline:
    """What the ratios are to, and how far two may differ that are the same."""

    name: str
    band: float
    left: str = "slower"
    right: str = "faster"


def forest_plot(
    name: str, title: str, description: str, rows: Sequence[ForestRow], base: Baseline
) -> Plot:
    """Draw rows of ratios on a logarithmic axis."""
    ends = [end for row in rows for mark in row.marks for end in (mark.low, mark.high)]
    axis = Axis("", ratio_ticks, log=True)
    across = axis.scale([*ends, 0.9, 1.12], 8, _PLOT_RIGHT)
    height = _TOP + sum(map(_height, rows)) + _BOTTOM
    low, high = across(1 / (1 + base.band)), across(1 + base.band)
    bottom = height - _BOTTOM
    ticks = spaced(ratio_ticks(across.low, across.high), across)
    parts = [
        svg.element("rect", x=low, y=_TOP, width=high - low, height=bottom - _TOP, class_="band"),
        svg.element("path", d=svg.upright(ticks, across, _TOP, bottom), class_="grid"),
        svg.element("path", d=f"M{svg.number(across(1))} {_TOP}V{bottom}", class_="base"),
        _head(base, across(1)),
    ]
    parts.append(svg.below(ticks, across, bottom + 14, WIDTH))
    if len(rows) > 8:
        parts.append(svg.below(ticks, across, _TOP - 6, WIDTH))
    y = float(_TOP)
    for row in rows:
        parts.append(_row(row, y, across))
        y += _height(row)
    legend = dict.fromkeys((mark.style, mark.label) for row in rows for mark in row.marks)
    return Plot(name, title, description, WIDTH, round(height), "".join(parts), tuple(legend))


def _head(base: Baseline, x: float) -> str:
    """Return the names of both sides, left and right of the baseline, where there is room."""
    left, right = f"← {base.left}", f"{base.right} than {base.name} →"
    start = min(x + 8, WIDTH - LETTER * len(right))
    drawn = svg.text(start, 12, right)
    room = min(x, start) - 8
    return drawn + (svg.text(room, 12, left, anchor="end") if room > LETTER * len(left) else "")


def _height(row: ForestRow) -> int:
    return _LABEL + _MARK * len(row.marks) + _GAP


def _row(row: ForestRow, y: float, across: Scale) -> str:
    parts = [svg.text(8, y + 12, svg.shortened(row.label), class_="name")]
    for index, mark in enumerate(row.marks):
        middle = y + _LABEL + _MARK * index + _MARK / 2
        low, high, value = across(mark.low), across(mark.high), across(mark.value)
        place = f"M{svg.number(low)} {svg.number(middle)}H{svg.number(high)}"
        line = svg.element("path", d=place, class_="whisker") if high - low > _HIDDEN else ""
        words = f"{mark.label} {mark.note}"
        shape = shape_at(mark.style, value, middle)
        dot = svg.element(
            "path", svg.element("title", svg.escape(words.strip())), d=shape, class_="mark"
        )
        value_text = f"{ratio(mark.value)} ({interval(mark.low, mark.high)})"
        figures = svg.text(WIDTH, middle + 4, value_text, anchor="end", class_="value")
        parts.append(svg.element("g", line + dot + figures, class_=f"s{mark.style}"))
    return "".join(parts)


def ratio(value: float) -> str:
    """Return ``4.50x``, in at most six characters."""
    if value >= 99_999 or value < 0.001:
        return f"{short_exponent(value)}x"
    if value >= 100:
        return f"{value:.0f}x"
    return f"{value:.2g}x" if value < 0.1 else f"{value:.2f}x"


def interval(low: float, high: float) -> str:
    """Return ``4.49-4.51``."""
    return f"{ratio(low)[:-1]}-{ratio(high)[:-1]}"
