"""A plot as SVG, for a page or a separate file, and the marks of implementations in it."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from losscli.render.html.svg import LETTER, Places, element, escape, number, polyline, text

STYLES: Final = 10
TEMPLATES = files("losscli.render.html") / "templates"
_LEGEND_HEIGHT = 22
_RADIUS = 4
_QUOTED = re.compile(r'="([^\s"\'=<>`/]+)"(/?)')
"""An attribute whose value HTML may have without quotation marks."""


@dataclass(frozen=True)
class Picture:
    """A plot as SVG with its words; colours are variables of the page's style."""

    name: str
    title: str
    description: str
    """The text alternative."""
    width: int
    height: int
    frame: str
    """The axes, which several plots of a page may share."""
    drawn: str
    legend: tuple[tuple[int, str], ...] = ()
    """The colour of each implementation in the plot."""

    def in_page(self, frame: str) -> str:
        """Return the element for a page, which has the legend, the colours and the frame's id."""
        axes = element("use", href=f"#{frame}") if self.frame else ""
        body = self._words() + unquoted(axes + self.drawn)
        return element("svg", body, role="img", viewBox=f"0 0 {self.width} {self.height}")

    def standalone(self) -> str:
        """Return a separate file, with title, legend and both themes."""
        lines = self._legend_lines()
        top = 26 + _LEGEND_HEIGHT * len(lines)
        width, height = self.width + 24, self.height + top + 8
        style = f"{stylesheet('colours.css')}{stylesheet('plot.css')}"
        ground = element("rect", width=width, height=height, class_="ground")
        head = text(12, 20, self.title, class_="head")
        keys = ""
        for row, line in enumerate(lines):
            y = 40 + _LEGEND_HEIGHT * row
            for x, index, label in line:
                key = element("path", d=f"M{x} {y - 4}h14", class_="whisker")
                key += element("path", d=f"M{x + 7} {y - 4}h0", class_="dots")
                keys += element("g", key + text(x + 19, y, label, class_="key"), class_=f"s{index}")
        marks = markers(sorted({index for index, _ in self.legend}))
        body = element("g", self.frame + self.drawn, transform=f"translate(12 {top})")
        size = {"width": width, "height": height, "viewBox": f"0 0 {width} {height}"}
        content = f"{self._words()}<style>{style}</style>{marks}{ground}{head}{keys}{body}"
        return element("svg", content, xmlns="http://www.w3.org/2000/svg", role="img", **size)

    def _words(self) -> str:
        return element("title", escape(self.title)) + element("desc", escape(self.description))

    def _legend_lines(self) -> list[list[tuple[int, int, str]]]:
        lines: list[list[tuple[int, int, str]]] = []
        x = self.width
        for index, label in self.legend:
            width = 34 + round(LETTER * len(label))
            if x + width > self.width or not lines:
                lines.append([])
                x = 12
            lines[-1].append((x, index, label))
            x += width
        return lines


def stylesheet(name: str) -> str:
    """Return a style sheet of the templates without comments and superfluous space."""
    plain = re.sub(r"/\*.*?\*/", "", (TEMPLATES / name).read_text("utf-8"), flags=re.DOTALL)
    return re.sub(r"\s*([{};,])\s*", r"\1", re.sub(r"\s+", " ", plain)).strip()


def unquoted(markup: str) -> str:
    """Leave out the quotation marks that HTML, unlike XML, does not need."""
    return _QUOTED.sub(lambda found: f"={found[1]}{' /' if found[2] else ''}", markup)


def marked(places: Places, name: str, labels: Iterable[str], class_: str) -> str:
    """Return a path with marks; the page's script makes tooltips of the lines of its title."""
    words = "\n".join(" ".join(each.split()) for each in (name, *labels))
    drawn = places if places[1:] else [*places, *places]  # a path of one point is not drawn
    return element("path", element("title", escape(words)), d=polyline(drawn), class_=class_)


def markers(styles: Iterable[int]) -> str:
    """Return the markers of styles, to which ``plot.css`` refers."""
    found = ""
    for style in styles:
        shape = element("path", d=shape_at(style, 0, 0), class_=f"mark s{style}")
        more = {"id": f"m{style}", "markerUnits": "userSpaceOnUse", "overflow": "visible"}
        found += element("marker", shape, **more)
    return element("defs", found)


def shape_at(style: int, x: float, y: float) -> str:
    """Return the outline of a style's mark: shapes differ as well as colours."""
    left, right, top, bottom = map(number, (x - _RADIUS, x + _RADIUS, y - _RADIUS, y + _RADIUS))
    middle, center = number(x), number(y)
    if style % 4 == 0:
        r, across = number(_RADIUS), number(2 * _RADIUS)
        return f"M{left} {center}a{r} {r} 0 1 0 {across} 0a{r} {r} 0 1 0-{across} 0"
    if style % 4 == 1:
        return f"M{left} {top}H{right}V{bottom}H{left}z"
    if style % 4 == 2:
        return f"M{middle} {top}L{right} {bottom}H{left}z"
    return f"M{middle} {top}L{right} {center}L{middle} {bottom}L{left} {center}z"
