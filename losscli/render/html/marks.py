"""The marks of implementations: a shape and a colour for each style, drawn by SVG markers."""

from collections.abc import Iterable, Sequence

from losscli.render.html import svg

_RADIUS = 4


def marked(
    places: Sequence[tuple[float, float]], name: str, labels: Iterable[str], class_: str
) -> str:
    """Return a path with a mark at each place, which the group's style draws.

    Its title has the name and a line for each mark, from which the page's script makes tooltips.
    """
    words = "\n".join(" ".join(each.split()) for each in (name, *labels))
    drawn = places if places[1:] else [*places, *places]  # a path of one point is not drawn
    title = svg.element("title", svg.escape(words))
    return svg.element("path", title, d=svg.polyline(drawn), class_=class_)


def markers(styles: Iterable[int]) -> str:
    """Return the markers of styles, to which ``plot.css`` refers."""
    return svg.element(
        "defs",
        "".join(
            svg.element(
                "marker",
                svg.element("path", d=shape_at(style, 0, 0), class_=f"mark s{style}"),
                id=f"m{style}",
                markerUnits="userSpaceOnUse",
                overflow="visible",
            )
            for style in styles
        ),
    )


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
