"""Line charts as SVG, small enough to stand within a page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

Points = Sequence[tuple[float, float]]

WIDTH, HEIGHT = 460, 260
LEFT, RIGHT, TOP, BOTTOM = 56, 14, 28, 40
COLOURS = ("#2563eb", "#d97706", "#059669", "#9333ea", "#dc2626")
"""Each stands out on white and on black."""
DASHES = ("", "6 4", "2 3", "8 3 2 3", "1 4")


@dataclass(frozen=True)
class Axis:
    """One axis of a chart: its name, its ends and its ticks."""

    name: str
    low: float
    high: float
    ticks: Sequence[tuple[float, str]]
    """Where each tick is, and what it says."""

    def share(self, value: float) -> float:
        """Return how far along the axis a value lies, from 0 to 1."""
        return (value - self.low) / (self.high - self.low)


def axis_over(name: str, values: Sequence[float]) -> Axis:
    """Return an axis with round ticks that holds all values."""
    low, high = min(values), max(values)
    if low == high:
        low, high = low - 1, high + 1
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    low, high = math.floor(low / step) * step, math.ceil(high / step) * step
    numbers = [low + i * step for i in range(round((high - low) / step) + 1)]
    return Axis(name, low, high, [(number, f"{number + 0.0:.4g}") for number in numbers])


def chart(title: str, x: Axis, y: Axis, lines: Sequence[tuple[str, Points]]) -> str:
    """Return a chart with a line for each series, which differ in colour and in dashes."""
    across, down = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def at(point: tuple[float, float]) -> str:
        return f"{LEFT + across * x.share(point[0]):.1f},{TOP + down * (1 - y.share(point[1])):.1f}"

    parts = [
        f'<svg class="chart" role="img" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'xmlns="http://www.w3.org/2000/svg" font-size="11" font-family="sans-serif" '
        f'fill="currentColor"><title>{escape(title)}</title>'
    ]
    grid = 'stroke="currentColor" stroke-opacity="0.15"'
    for value, label in x.ticks:
        place = at((value, y.low)).split(",")[0]
        parts.append(f'<line x1="{place}" x2="{place}" y1="{TOP}" y2="{TOP + down}" {grid}/>')
        parts.append(
            f'<text x="{place}" y="{TOP + down + 14}" text-anchor="middle">{escape(label)}</text>'
        )
    for value, label in y.ticks:
        place = at((x.low, value)).split(",")[1]
        parts.append(f'<line x1="{LEFT}" x2="{LEFT + across}" y1="{place}" y2="{place}" {grid}/>')
        parts.append(
            f'<text x="{LEFT - 6}" y="{place}" dy="4" text-anchor="end">{escape(label)}</text>'
        )
    middle = LEFT + across / 2
    parts.append(
        f'<text x="{middle:g}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x.name)}</text>'
    )
    parts.append(f'<text x="6" y="14">{escape(y.name)}</text>')
    place_of_name = WIDTH - RIGHT
    for (name, points), colour, dash in reversed(list(zip(lines, COLOURS, DASHES, strict=False))):
        drawn = " ".join(at(point) for point in points if math.isfinite(point[1]))
        parts.append(
            f'<polyline points="{drawn}" fill="none" stroke="{colour}" stroke-width="2" '
            f'stroke-dasharray="{dash}"/>'
        )
        parts.append(
            f'<text x="{place_of_name}" y="14" text-anchor="end" fill="{colour}" '
            f'font-weight="bold">{escape(name)}</text>'
        )
        place_of_name -= 8 * len(name) + 10
    return "".join(parts) + "</svg>"


def figure(drawing: str, caption: str) -> str:
    """Return a drawing with its caption, as HTML within Markdown."""
    html = f"<figure>{drawing}<figcaption>{escape(caption)}</figcaption></figure>"
    return f"```{{raw}} html\n{html}\n```\n"
