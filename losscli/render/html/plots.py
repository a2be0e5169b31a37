"""Draw a plot: lines or marks over size, a forest of ratios, or strips of samples."""

from collections.abc import Callable, Mapping, Sequence

from losscli.render.html import svg
from losscli.runs.grouping import grouped
from losscli.units import first_of, format_bytes
from losscli.views.document import Kind, Plot, Point, Series, Unit
from losscli.views.phrases import count
from losscli.views.plots import LEAST_ULP

WIDTH, HEIGHT = 440, 290
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 14, 26, 42
_RADIUS = 4
_FOREST_RIGHT, _FOREST_TOP, _FOREST_BOTTOM = 318, 34, 24
_LABEL, _MARK, _GAP = 15, 14, 5
_STRIP_LABEL, _PROCESS, _STRIP_GAP = 31, 9, 8
_LEAST_REACH = 0.005
"""Least reach of the strips' axis from the median."""
_HIDDEN = 4
"""Pixels of an interval that the mark hides."""
_TOLD = 12
_AXES: Mapping[Unit, svg.Axis] = {
    "ulp": svg.Axis("error in ulp", svg.log_ticks, log=True, low=LEAST_ULP),
    "operand bytes": svg.Axis("bytes of the operands", svg.byte_ticks, log=True),
    "bytes": svg.Axis("minimum traffic of the pass", svg.byte_ticks, log=True),
    "seconds": svg.Axis("time of a call", svg.second_ticks, log=True),
    "GB/s": svg.Axis("GB/s", svg.log_ticks, log=True),
    "fraction": svg.Axis("fraction of peak bandwidth", svg.percent_ticks, low=0.0),
    "products": svg.Axis("fraction of the products' speed", svg.percent_ticks, low=0.0),
    "ratio": svg.Axis("", svg.ratio_ticks, log=True),
}


def draw(plot: Plot, styles: Mapping[str, int]) -> svg.Picture:
    """Return the picture of a plot; ``styles`` has each implementation's colour."""
    series = sorted(plot.series, key=lambda each: styles[each.name])
    height, body = _DRAWN[plot.kind](plot, series, styles)
    legend = tuple(dict.fromkeys((styles[each.name], each.name) for each in series))
    described = "; ".join(f"{each.name}: {_described(plot, each)}" for each in series)
    return svg.Picture(plot.name, plot.title, f"{described}.", WIDTH, round(height), body, legend)


def _described(plot: Plot, series: Series) -> str:
    if plot.kind == "strips":
        return f"{series.points[0].label}, {count(len(series.points), 'sample')}"
    if plot.kind != "forest":
        return first_of((point.label for point in series.points), _TOLD)
    return first_of((f"{point.label} {ratio(point.x)}" for point in series.points), _TOLD)


def _lines(plot: Plot, series: Sequence[Series], styles: Mapping[str, int]) -> tuple[float, str]:
    x, y = _AXES[plot.x], _AXES[plot.y]
    points = [point for each in series for point in each.points]
    across = x.scale((p.x for p in points), _LEFT, WIDTH - _RIGHT)
    up = y.scale([*(p.y for p in points), *(v for _, v in plot.roof)], HEIGHT - _BOTTOM, _TOP)
    parts = [_cached(plot.cache_bytes, across, inside=bool(plot.roof))] if plot.cache_bytes else []
    parts.append(_grid(x, across, y, up))
    if plot.roof:
        places = [(across(place), up(value)) for place, value in plot.roof]
        if len({place for place, _ in places}) == 1:
            places = [(_LEFT, places[0][1]), (WIDTH - _RIGHT, places[0][1])]
        end, top = places[-1]
        parts.append(svg.element("path", d=svg.polyline(places), class_="roof"))
        name = "bare matrix products" if plot.y == "products" else "memory-bandwidth limit"
        at = max(top - 5, _TOP - 4)
        parts.append(svg.text(end, at, name, class_="roof-name end"))
    for each in reversed(series):  # the first line is drawn last, above the others
        drawn = [(across(point.x), up(point.y)) for point in each.points]
        style = styles[each.name]
        line = svg.element("path", d=svg.polyline(drawn), class_="line")
        line = line if drawn[1:] and plot.kind == "lines" else ""
        line += "".join(
            _mark(style, *place, f"{each.name}, {point.label}")
            for point, place in zip(each.points, drawn, strict=True)
        )
        parts.append(svg.element("g", line, class_=f"s{style}"))
    return HEIGHT, "".join(parts)


def _grid(x: svg.Axis, across: svg.Scale, y: svg.Axis, up: svg.Scale) -> str:
    left, right, bottom = _LEFT, WIDTH - _RIGHT, HEIGHT - _BOTTOM
    level = y.ticks(up.low, up.high)
    down = svg.spaced(x.ticks(across.low, across.high), across)
    path = "".join(f"M{left} {svg.number(up(v))}H{right}" for v, _ in level)
    path += svg.upright(down, across, _TOP, bottom)
    words = [svg.text(left - 6, up(value) + 4, words, class_="end") for value, words in level]
    words += [svg.below(down, across, bottom + 16, WIDTH), svg.text(0, 11, y.title)]
    words += [svg.text((left + right) / 2, HEIGHT - 6, x.title, class_="mid")]
    frame = svg.element("path", d=f"M{left} {bottom}H{right}", class_="edge")
    return svg.element("path", d=path, class_="grid") + frame + "".join(words)


def _cached(cache_bytes: int, across: svg.Scale, *, inside: bool) -> str:
    """Shade the sizes that fit in the cache; the label is ``inside`` where a roof has a name."""
    if cache_bytes <= across.low:
        return ""
    width = across(cache_bytes) - _LEFT
    height = HEIGHT - _BOTTOM - _TOP
    shade = svg.element("rect", x=_LEFT, y=_TOP, width=width, height=height, class_="band")
    name = f"fits in the cache ({format_bytes(cache_bytes)})"
    if inside:
        return shade + svg.text(_LEFT + 5, _TOP + 13, name, class_="inner")
    return shade + svg.text(WIDTH - _RIGHT, _TOP - 6, f"shaded: {name}", class_="end")


def _mark(style: int, x: float, y: float, words: str) -> str:
    title = svg.element("title", svg.escape(words))
    return svg.element("path", title, d=shape_at(style, x, y), class_="mark")


def _forest(plot: Plot, series: Sequence[Series], styles: Mapping[str, int]) -> tuple[float, str]:
    rows: dict[str, list[tuple[str, Point]]] = {}
    for each in series:
        for point in each.points:
            rows.setdefault(point.label, []).append((each.name, point))
    points = [point for marks in rows.values() for _, point in marks]
    ends = [end for point in points for end in (point.low, point.high)]
    across = _AXES["ratio"].scale([*ends, 0.9, 1.12], 8, _FOREST_RIGHT)
    height = _FOREST_TOP + sum(_LABEL + _MARK * len(m) + _GAP for m in rows.values())
    bottom = height
    low, high = across(1 / (1 + plot.band)), across(1 + plot.band)
    ticks = svg.spaced(svg.ratio_ticks(across.low, across.high), across)
    top, one = _FOREST_TOP, across(1)
    parts = [
        svg.element("rect", x=low, y=top, width=high - low, height=bottom - top, class_="band"),
        svg.element("path", d=svg.upright(ticks, across, top, bottom), class_="grid"),
        svg.element("path", d=f"M{svg.number(one)} {top}V{bottom}", class_="base"),
        _sides(plot.sides, one),
        svg.below(ticks, across, bottom + 14, WIDTH),
    ]
    y = float(top)
    for label, marks in rows.items():
        parts.append(svg.text(8, y + 12, svg.shortened(label), class_="name"))
        for index, (name, point) in enumerate(marks):
            middle = y + _LABEL + _MARK * index + _MARK / 2
            parts.append(_bar(styles[name], name, point, across, middle))
        y += _LABEL + _MARK * len(marks) + _GAP
    return height + _FOREST_BOTTOM, "".join(parts)


def _sides(sides: tuple[str, str], x: float) -> str:
    left, right = f"← {sides[0]}", f"{sides[1]} →"
    start = min(x + 8, WIDTH - svg.LETTER * len(right))
    room = min(x, start) - 8
    fits = room > svg.LETTER * len(left)
    return svg.text(start, 12, right) + (svg.text(room, 12, left, class_="end") if fits else "")


def _bar(style: int, name: str, point: Point, across: svg.Scale, y: float) -> str:
    low, high, value = across(point.low), across(point.high), across(point.x)
    place = f"M{svg.number(low)} {svg.number(y)}H{svg.number(high)}"
    line = svg.element("path", d=place, class_="whisker") if high - low > _HIDDEN else ""
    written = f"{ratio(point.x)} ({_interval(point.low, point.high)})"
    words = svg.text(WIDTH, y + 4, written, class_="value end")
    return svg.element("g", line + _mark(style, value, y, name) + words, class_=f"s{style}")


def _strips(plot: Plot, series: Sequence[Series], styles: Mapping[str, int]) -> tuple[float, str]:
    """Draw ticks on one axis; outliers are drawn at its end and counted."""
    points = [point for each in series for point in each.points]
    spread = max(max(abs(point.low), abs(point.high)) for point in points)
    farthest = max(abs(point.x) for point in points)
    reach = max(min(farthest * 1.03, spread * 4), _LEAST_REACH)
    across = svg.Scale(max(-reach, -1.0), reach, 8, WIDTH - 8)  # no sample takes less than nothing
    drawn, y = [], 4.0
    for each in series:
        drawn.append(_strip(each, across, reach, y, styles[each.name]))
        y += _STRIP_LABEL + _PROCESS * _processes(each) + _STRIP_GAP
    ticks = svg.spaced(svg.percent_ticks(across.low, reach), across)
    parts = [
        svg.element("path", d=svg.upright(ticks, across, 4, y), class_="grid"),
        svg.element("path", d=f"M{svg.number(across(0))} 4V{svg.number(y)}", class_="base"),
        *drawn,
        svg.below(ticks, across, y + 14, WIDTH),
        svg.text(WIDTH / 2, y + 30, "distance from the median", class_="mid"),
    ]
    return y + 34, "".join(parts)


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
    start, width = across(first.low), across(first.high) - across(first.low)
    height = _PROCESS * _processes(series)
    parts.append(
        svg.element("rect", words, x=start, y=y, width=width, height=height, class_="band")
    )
    for process, own in grouped(series.points, lambda point: point.y).items():
        top = svg.number(y + _PROCESS * process + 1)
        places = sorted({round(across(point.x)) for point in own})
        path = "".join(f"M{place} {top}v7" for place in places)
        parts.append(svg.element("path", d=path, class_="tick"))
    return svg.element("g", "".join(parts), class_=f"s{style}")


_DRAWN: Mapping[Kind, Callable[..., tuple[float, str]]] = {
    "lines": _lines, "marks": _lines, "forest": _forest, "strips": _strips,
}  # fmt: skip


def ratio(value: float) -> str:
    """Return ``4.50x``, in at most six characters."""
    if value >= 99_999 or value < 0.001:
        return f"{svg.short_exponent(value)}x"
    if value >= 100:
        return f"{value:.0f}x"
    return f"{value:.2g}x" if value < 0.1 else f"{value:.2f}x"


def _interval(low: float, high: float) -> str:
    return f"{ratio(low)[:-1]}-{ratio(high)[:-1]}"


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
