"""Draws lines over a logarithmic axis of sizes, with a roof above them and the cache marked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from losscli.render.html import svg
from losscli.render.html.scales import Axis, Scale, spaced
from losscli.render.html.svg import Plot
from losscli.units import format_bytes

WIDTH, HEIGHT = 440, 290
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 14, 26, 42
_RADIUS = 4
_SMALL = (220, 150)


@dataclass(frozen=True)
class Point:
    """A value with what is shown where one points at it."""

    x: float
    y: float
    words: str = ""


@dataclass(frozen=True)
class Line:
    """The values of an implementation: those that a line connects, and a cloud of others."""

    style: int
    label: str
    points: tuple[Point, ...]
    cloud: tuple[tuple[float, float], ...] = ()
    joined: bool = True
    """Whether a line connects the points."""


@dataclass(frozen=True)
class Roof:
    """A limit that nothing should exceed: its name, and its places from left to right."""

    name: str
    points: tuple[tuple[float, float], ...] = ()
    level: float | None = None
    """The height of a roof that is the same everywhere."""


def line_plot(
    name: str,
    title: str,
    description: str,
    lines: Sequence[Line],
    x: Axis,
    y: Axis,
    *,
    roof: Roof | None = None,
    cache_bytes: int | None = None,
) -> Plot:
    """Draw lines; the figures of the points stand in their titles.

    The sizes that fit in a cache of ``cache_bytes`` are shaded.
    """
    places = [(p.x, p.y) for line in lines for p in line.points]
    places += [place for line in lines for place in line.cloud]
    xs, ys = ([place[i] for place in places] for i in (0, 1))
    ys += [y for _, y in roof.points] if roof else []
    across = x.scale(xs, _LEFT, WIDTH - _RIGHT)
    up = y.scale(ys, HEIGHT - _BOTTOM, _TOP)
    parts = [_cached(cache_bytes, across)] if cache_bytes and cache_bytes > across.low else []
    parts += [_grid(x, across, y, up)]
    if roof:
        parts += [_roof(roof, across, up)]
    # The first line is drawn last, above the others.
    parts += [_line(line, across, up) for line in reversed(lines)]
    legend = tuple((line.style, line.label) for line in lines)
    return Plot(name, title, description, WIDTH, HEIGHT, "".join(parts), legend)


def small_plot(
    name: str, title: str, description: str, lines: Sequence[Line], x: Axis, y: Axis, level: float
) -> Plot:
    """Draw one of many small plots, in few characters; ``level`` is that of the roof."""
    width, height = _SMALL
    across = x.scale((p.x for line in lines for p in line.points), 36, width - 8)
    up = y.scale((p.y for line in lines for p in line.points), height - 20, 10)
    ticks = spaced(x.ticks(across.low, across.high), across)
    shown = ticks if len(ticks) < 3 else [ticks[0], ticks[-1]]
    parts = [svg.element("path", d=f"M36 {svg.number(up(level))}H{width - 8}", class_="roof")]
    parts += [svg.element("path", d=f"M36 {height - 20}H{width - 8}", class_="edge")]
    parts.append(svg.below(shown, across, height - 5, width))
    parts += [svg.text(31, up(v) + 4, f"{100 * v:.0f}", anchor="end") for v in (0.0, level)]
    for line in reversed(lines):
        places = [(across(p.x), up(p.y)) for p in line.points]
        path = svg.element("path", d=svg.polyline(places), class_="line")
        marks = svg.element("path", d=svg.dots(places), class_="cloud")
        parts += [svg.element("g", path + marks, class_=f"s{line.style}")]
    legend = tuple((line.style, line.label) for line in lines)
    return Plot(name, title, description, width, height, "".join(parts), legend)


def _grid(x: Axis, across: Scale, y: Axis, up: Scale) -> str:
    left, right, bottom = _LEFT, WIDTH - _RIGHT, HEIGHT - _BOTTOM
    level = y.ticks(up.low, up.high)
    down = spaced(x.ticks(across.low, across.high), across)
    path = "".join(f"M{left} {svg.number(up(v))}H{right}" for v, _ in level)
    path += svg.upright(down, across, _TOP, bottom)
    words = [svg.text(left - 6, up(value) + 4, words, anchor="end") for value, words in level]
    words += [svg.below(down, across, bottom + 16, WIDTH), svg.text(0, 11, y.title)]
    words += [svg.text((left + right) / 2, HEIGHT - 6, x.title, anchor="middle")]
    frame = svg.element("path", d=f"M{left} {bottom}H{right}", class_="edge")
    return svg.element("path", d=path, class_="grid") + frame + "".join(words)


def _cached(cache_bytes: int, across: Scale) -> str:
    end = across(cache_bytes)
    shade = svg.element(
        "rect", x=_LEFT, y=_TOP, width=end - _LEFT, height=HEIGHT - _BOTTOM - _TOP, class_="band"
    )
    name = f"fits in the cache ({format_bytes(cache_bytes)})"
    return shade + svg.text(_LEFT + 5, _TOP + 13, name, class_="inner")


def _roof(roof: Roof, across: Scale, up: Scale) -> str:
    places = [(across(x), up(y)) for x, y in roof.points]
    if roof.level is not None:
        places = [(_LEFT, up(roof.level)), (WIDTH - _RIGHT, up(roof.level))]
    if not places:
        return ""
    x, y = places[-1]
    name = svg.text(x, max(y - 5, _TOP - 4), roof.name, anchor="end", class_="roof-name")
    return svg.element("path", d=svg.polyline(places), class_="roof") + name


def _line(line: Line, across: Scale, up: Scale) -> str:
    parts = []
    if line.cloud:
        places = [(across(x), up(y)) for x, y in line.cloud]
        parts.append(svg.element("path", d=svg.dots(places), class_="cloud"))
    places = [(across(point.x), up(point.y)) for point in line.points]
    if line.joined and len(places) > 1:
        parts.append(svg.element("path", d=svg.polyline(places), class_="line"))
    for point, (x, y) in zip(line.points, places, strict=True):
        words = svg.element("title", svg.escape(point.words)) if point.words else ""
        parts.append(svg.element("path", words, d=shape_at(line.style, x, y), class_="mark"))
    return svg.element("g", "".join(parts), class_=f"s{line.style}")


def shape_at(style: int, x: float, y: float, size: float = _RADIUS) -> str:
    """Return the outline of the mark of a style: colours alone do not tell styles apart."""
    left, right, top, bottom = map(svg.number, (x - size, x + size, y - size, y + size))
    middle, center = svg.number(x), svg.number(y)
    if style % 4 == 0:
        r, across = svg.number(size), svg.number(2 * size)
        return f"M{left} {center}a{r} {r} 0 1 0 {across} 0a{r} {r} 0 1 0-{across} 0"
    if style % 4 == 1:
        return f"M{left} {top}H{right}V{bottom}H{left}z"
    if style % 4 == 2:
        return f"M{middle} {top}L{right} {bottom}H{left}z"
    return f"M{middle} {top}L{right} {center}L{middle} {bottom}L{left} {center}z"
