"""A plot as SVG, for a page or a separate file: lines, marks, a forest of ratios, or strips."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from losscli.render.html import svg
from losscli.runs.grouping import collected, grouped
from losscli.units import format_bytes
from losscli.views.document import Plot, Point, Series, Unit
from losscli.views.phrases import count
from losscli.views.plots import LEAST_ULP

STYLES: Final = 10
TEMPLATES = files("losscli.render.html") / "templates"
_LEGEND_HEIGHT = 22
_RADIUS = 4
_QUOTED = re.compile(r'="([^\s"\'=<>`/]+)"(/?)')
"""An attribute whose value HTML may have without quotation marks."""
WIDTH, HEIGHT = 440, 290
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 14, 26, 42
_FOREST_RIGHT, _FOREST_TOP, _FOREST_BOTTOM = 318, 34, 24
_LABEL, _MARK, _GAP = 15, 14, 5
_STRIP_LABEL, _PROCESS, _STRIP_GAP = 31, 9, 8
_Drawn = tuple[float, str, str]
"""The height, the frame that several plots may share, and what is drawn on it."""
_AXES: Mapping[Unit, svg.Axis] = {
    "ulp": svg.Axis("error in ulp", svg.log_ticks, log=True, low=LEAST_ULP),
    "operand bytes": svg.Axis("bytes of the operands", svg.byte_ticks, log=True),
    "bytes": svg.Axis("minimum traffic of the pass", svg.byte_ticks, log=True),
    "seconds": svg.Axis("time of a call", svg.second_ticks, log=True),
    "GB/s": svg.Axis("GB/s", svg.log_ticks, log=True),
    "fraction": svg.Axis("fraction of peak bandwidth", svg.percent_ticks, low=0.0, step=0.05),
    "products": svg.Axis("fraction of the products' speed", svg.percent_ticks, low=0.0, step=0.05),
    "ratio": svg.Axis("", svg.ratio_ticks, log=True),
}


@dataclass(frozen=True)
class Picture:
    """A plot as SVG with its words; colours are variables of the page's style."""

    name: str
    title: str
    description: str
    height: int
    frame: str
    """The axes, which several plots of a page may share."""
    drawn: str
    legend: tuple[tuple[int, str], ...] = ()
    """The colour of each implementation in the plot."""

    def in_page(self, frame: str) -> str:
        """Return the element for a page, which has the legend, the colours and the frame's id."""
        axes = svg.element("use", href=f"#{frame}") if self.frame else ""
        body = self._words() + unquoted(axes + self.drawn)
        return svg.element("svg", body, role="img", viewBox=f"0 0 {WIDTH} {self.height}")

    def standalone(self) -> str:
        """Return a separate file, with title, legend and both themes."""
        keys, lines, x = "", 0, WIDTH
        for index, label in self.legend:
            wide = 34 + round(svg.LETTER * len(label))
            if x + wide > WIDTH:
                x, lines = 12, lines + 1
            y = 18 + _LEGEND_HEIGHT * lines
            key = svg.element("path", d=f"M{x} {y - 4}h14", class_="whisker")
            key += svg.element("path", d=f"M{x + 7} {y - 4}h0", class_="dots")
            key += svg.text(x + 19, y, label, class_="key")
            keys += svg.element("g", key, class_=f"s{index}")
            x += wide
        top = 26 + _LEGEND_HEIGHT * lines
        width, height = WIDTH + 24, self.height + top + 8
        style = f"{stylesheet('colours.css')}{stylesheet('plot.css')}"
        ground = svg.element("rect", width=width, height=height, class_="ground")
        head = svg.text(12, 20, self.title, class_="head")
        marks = markers(sorted({index for index, _ in self.legend}))
        body = svg.element("g", self.frame + self.drawn, transform=f"translate(12 {top})")
        size = {"width": width, "height": height, "viewBox": f"0 0 {width} {height}"}
        content = f"{self._words()}<style>{style}</style>{marks}{ground}{head}{keys}{body}"
        return svg.element("svg", content, xmlns="http://www.w3.org/2000/svg", role="img", **size)

    def _words(self) -> str:
        description = svg.element("desc", svg.escape(self.description))
        return svg.element("title", svg.escape(self.title)) + description


def stylesheet(name: str) -> str:
    """Return a style sheet of the templates without comments and superfluous space."""
    plain = re.sub(r"/\*.*?\*/", "", (TEMPLATES / name).read_text("utf-8"), flags=re.DOTALL)
    return re.sub(r"\s*([{};,])\s*", r"\1", re.sub(r"\s+", " ", plain)).strip()


def unquoted(markup: str) -> str:
    """Leave out the quotation marks that HTML, unlike XML, does not need."""
    return _QUOTED.sub(lambda found: f"={found[1]}{' /' if found[2] else ''}", markup)


def _marked(places: svg.Places, name: str, labels: Iterable[str], class_: str) -> str:
    """Return a path with marks; the page's script makes tooltips of the lines of its title."""
    words = "\n".join(" ".join(each.split()) for each in (name, *labels))
    drawn = places if places[1:] else [*places, *places]  # a path of one point is not drawn
    return svg.element(
        "path", svg.element("title", svg.escape(words)), d=svg.polyline(drawn), class_=class_
    )


def markers(styles: Iterable[int]) -> str:
    """Return the markers of styles, to which ``plot.css`` refers."""
    found = ""
    for style in styles:
        shape = svg.element("path", d=shape_at(style, 0, 0), class_=f"mark s{style}")
        more = {"id": f"m{style}", "markerUnits": "userSpaceOnUse", "overflow": "visible"}
        found += svg.element("marker", shape, **more)
    return svg.element("defs", found)


def shape_at(style: int, x: float, y: float) -> str:
    """Return the outline of a style's mark: shapes differ as well as colours."""
    left, right, top, bottom = map(svg.number, (x - _RADIUS, x + _RADIUS, y - _RADIUS, y + _RADIUS))
    middle, center = svg.number(x), svg.number(y)
    if style % 4 == 0:
        r, across = svg.number(_RADIUS), svg.number(2 * _RADIUS)
        return f"M{left} {center}a{r} {r} 0 1 0 {across} 0a{r} {r} 0 1 0-{across} 0"
    if style % 4 == 1:
        return f"M{left} {top}H{right}V{bottom}H{left}z"
    if style % 4 == 2:
        return f"M{middle} {top}L{right} {bottom}H{left}z"
    return f"M{middle} {top}L{right} {center}L{middle} {bottom}L{left} {center}z"


def draw(plot: Plot, styles: Mapping[str, int]) -> Picture:
    """Return the picture of a plot; ``styles`` has each implementation's colour."""
    series = sorted(plot.series, key=lambda each: styles[each.name])
    draw_kind = {"forest": _forest, "strips": _strips}.get(plot.kind, _lines)
    height, frame, drawn = draw_kind(plot, series, styles)
    legend = tuple(dict.fromkeys((styles[each.name], each.name) for each in series))
    described = "; ".join(f"{each.name}: {_described(plot, each)}" for each in series)
    words = plot.name, plot.title, f"{described}."
    return Picture(*words, round(height), frame, drawn, legend)


def _described(plot: Plot, series: Series) -> str:
    if plot.kind == "strips":
        return f"{series.points[0].label}, {count(len(series.points), 'sample')}"
    forest = plot.kind == "forest"
    points = sorted(series.points, key=lambda point: point.x if forest else point.y)
    told = [f"{each.label} {ratio(each.x)}" if forest else each.label for each in points]
    if len(told) <= 3:
        return ", ".join(told)
    return f"{len(told)} values from {told[0]} to {told[-1]}"


def _lines(plot: Plot, series: Sequence[Series], styles: Mapping[str, int]) -> _Drawn:
    x, y = _AXES[plot.x], _AXES[plot.y]
    points = [point for each in series for point in each.points]
    reach = [*(p.x for p in points), *(place for place, _ in plot.roof)]
    across = x.scale(reach, _LEFT, WIDTH - _RIGHT)
    up = y.scale([*(p.y for p in points), *(v for _, v in plot.roof)], HEIGHT - _BOTTOM, _TOP)
    levels = {value for _, value in plot.roof}
    below = up(min(levels)) if len(levels) == 1 else _TOP if levels else None
    frame = [_cached(plot.cache_bytes, across, below)] if plot.cache_bytes else []
    frame.append(_grid(x, across, y, up))
    if plot.roof:
        places = [(across(place), up(value)) for place, value in plot.roof]
        if len({place for place, _ in places}) == 1:
            places = [(_LEFT, places[0][1]), (WIDTH - _RIGHT, places[0][1])]
        frame.append(svg.element("path", d=svg.polyline(places), class_="roof"))
        name = "bare matrix products" if plot.y == "products" else "memory-bandwidth limit"
        frame.append(svg.text(places[-1][0], _TOP - 4, name, class_="roof-name end"))
    class_ = "line" if plot.kind == "lines" else "dots"
    drawn = []
    for each in reversed(series):  # the first line is drawn last, above the others
        places = [(across(point.x), up(point.y)) for point in each.points]
        line = _marked(places, each.name, (point.label for point in each.points), class_)
        drawn.append(svg.element("g", line, class_=f"s{styles[each.name]}"))
    return HEIGHT, "".join(frame), "".join(drawn)


def _grid(x: svg.Axis, across: svg.Scale, y: svg.Axis, up: svg.Scale) -> str:
    left, right, bottom = _LEFT, WIDTH - _RIGHT, HEIGHT - _BOTTOM
    level = y.ticks(up.low, up.high)
    down = svg.spaced(x.ticks(across.low, across.high), across)
    path = "".join(f"M{left},{svg.number(up(v))}H{right}" for v, _ in level)
    path += svg.upright(down, across, _TOP, bottom)
    words = [svg.text(left - 6, up(value) + 4, words, class_="end") for value, words in level]
    words += [svg.below(down, across, bottom + 16, WIDTH), svg.text(0, 11, y.title)]
    words += [svg.text((left + right) / 2, HEIGHT - 6, x.title, class_="mid")]
    frame = svg.element("path", d=f"M{left},{bottom}H{right}", class_="edge")
    return svg.element("path", d=path, class_="grid") + frame + "".join(words)


def _cached(cache_bytes: int, across: svg.Scale, below: float | None) -> str:
    """Shade the sizes that fit in the cache; the label is ``below`` a roof, whose name is above."""
    if cache_bytes <= across.low:
        return ""
    width = across(cache_bytes) - _LEFT
    height = HEIGHT - _BOTTOM - _TOP
    shade = svg.element("rect", x=_LEFT, y=_TOP, width=width, height=height, class_="band")
    name = f"fits in the cache ({format_bytes(cache_bytes)})"
    if below is not None:
        return shade + svg.text(_LEFT + 5, below + 13, name, class_="inner")
    return shade + svg.text(WIDTH - _RIGHT, _TOP - 6, f"shaded: {name}", class_="end")


def _forest(plot: Plot, series: Sequence[Series], styles: Mapping[str, int]) -> _Drawn:
    rows = collected((p.label, (each.name, p)) for each in series for p in each.points)
    ends = [end for each in series for p in each.points for end in (p.low, p.high)]
    across = _AXES["ratio"].scale([*ends, 0.9, 1.12], 8, _FOREST_RIGHT)
    low, high = across(1 / (1 + plot.band)), across(1 + plot.band)
    ticks = svg.spaced(svg.ratio_ticks(across.low, across.high), across)
    y, top, one = _FOREST_TOP, _FOREST_TOP, across(1)
    names: list[str] = []
    bars: dict[str, list[tuple[Point, float]]] = {}
    for label, marks in rows.items():
        names.append(svg.text(8, y + 12, svg.shortened(label)))
        for index, (name, point) in enumerate(marks):
            bars.setdefault(name, []).append((point, y + _LABEL + _MARK * index + _MARK / 2))
        y += _LABEL + _MARK * len(marks) + _GAP
    parts = [
        svg.element("rect", x=low, y=top, width=high - low, height=y - top, class_="band"),
        svg.element("path", d=svg.upright(ticks, across, top, y), class_="grid"),
        svg.element("path", d=f"M{svg.number(one)},{top}V{y}", class_="base"),
        _sides(plot.sides, one),
        svg.below(ticks, across, y + 14, WIDTH),
        svg.element("g", "".join(names), class_="name"),
        *(_bars(styles[name], name, own, across) for name, own in bars.items()),
    ]
    return y + _FOREST_BOTTOM, "", "".join(parts)


def _sides(sides: tuple[str, str], x: float) -> str:
    left, right = f"← {sides[0]}", f"{sides[1]} →"
    start = min(x + 8, WIDTH - svg.LETTER * len(right))
    room = min(x, start) - 8
    fits = room > svg.LETTER * len(left)
    return svg.text(start, 12, right) + (svg.text(room, 12, left, class_="end") if fits else "")


def _bars(style: int, name: str, bars: Sequence[tuple[Point, float]], across: svg.Scale) -> str:
    # The mark hides an interval of a few pixels.
    ends = [(across(point.low), across(point.high), y) for point, y in bars]
    seen = [map(svg.number, (low, y, high)) for low, high, y in ends if high - low > 4]
    lines = "".join(f"M{low},{y}H{high}" for low, y, high in seen)
    whiskers = svg.element("path", d=lines, class_="whisker") if lines else ""
    marks = _marked([(across(point.x), y) for point, y in bars], name, (), "dots")
    told = ((f"{ratio(p.x)} ({ratio(p.low)[:-1]}-{ratio(p.high)[:-1]})", y) for p, y in bars)
    words = "".join(svg.text(WIDTH, y + 4, text) for text, y in told)
    return svg.element("g", whiskers + marks + words, class_=f"s{style} value")


def _strips(plot: Plot, series: Sequence[Series], styles: Mapping[str, int]) -> _Drawn:
    """Draw ticks on one axis; outliers are drawn at its end and counted."""
    points = [point for each in series for point in each.points]
    spread = max(max(abs(point.low), abs(point.high)) for point in points)
    farthest = max(abs(point.x) for point in points)
    reach = max(min(farthest * 1.03, spread * 4), 0.005)
    across = svg.Scale(max(-reach, -1.0), reach, 8, WIDTH - 8)  # no sample takes less than nothing
    drawn, y = [], 4.0
    for each in series:
        drawn.append(_strip(each, across, reach, y, styles[each.name]))
        y += _STRIP_LABEL + _PROCESS * _processes(each) + _STRIP_GAP
    ticks = svg.spaced(svg.percent_ticks(across.low, reach), across)
    parts = [
        svg.element("path", d=svg.upright(ticks, across, 4, y), class_="grid"),
        svg.element("path", d=f"M{svg.number(across(0))},4V{svg.number(y)}", class_="base"),
        *drawn,
        svg.below(ticks, across, y + 14, WIDTH),
        svg.text(WIDTH / 2, y + 30, "distance from the median", class_="mid"),
    ]
    return y + 34, "", "".join(parts)


def _processes(series: Series) -> int:
    return 1 + int(max(point.y for point in series.points))


def _strip(series: Series, across: svg.Scale, reach: float, y: float, style: int) -> str:
    first = series.points[0]
    beyond = sum(abs(point.x) > reach for point in series.points)
    size = count(len(series.points), "sample") + f", {beyond} at the ends or beyond" * bool(beyond)
    parts = [svg.text(8, y + 12, svg.shortened(first.label), class_="name")]
    parts.append(svg.text(8, y + 26, f"{series.name}, {size}", class_="over"))
    y += _STRIP_LABEL
    words = svg.element("title", svg.escape(f"p20 to p80 of {first.label}"))
    x, height = across(first.low), _PROCESS * _processes(series)
    width = across(first.high) - x
    parts.append(svg.element("rect", words, x=x, y=y, width=width, height=height, class_="band"))
    for process, own in grouped(series.points, lambda point: point.y).items():
        top = svg.number(y + _PROCESS * process + 1)
        places = sorted({round(across(point.x)) for point in own})
        path = "".join(f"M{place},{top}v7" for place in places)
        parts.append(svg.element("path", d=path, class_="tick"))
    return svg.element("g", "".join(parts), class_=f"s{style}")


def ratio(value: float) -> str:
    """Return ``4.50x``, in at most six characters."""
    if value >= 99_999 or value < 0.001:
        return f"{svg.short_exponent(value)}x"
    if value >= 100:
        return f"{value:.0f}x"
    return f"{value:.2g}x" if value < 0.1 else f"{value:.2f}x"
