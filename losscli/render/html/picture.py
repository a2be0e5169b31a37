"""A plot as SVG, for a page or a separate file."""

import re
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from losscli.render.html.marks import markers
from losscli.render.html.svg import LETTER, element, escape, text

STYLES: Final = 10
TEMPLATES = files("losscli.render.html") / "templates"
_LEGEND_HEIGHT = 22
_QUOTED = re.compile(r'="([^\s"\'=<>`/]+)"(/?)')
"""An attribute whose value HTML may have without quotation marks."""


@dataclass(frozen=True)
class Picture:
    """A plot as SVG with its words; colours are variables of the page's style."""

    name: str
    """The name that ``losscli report --plot`` takes."""
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

    @property
    def body(self) -> str:
        """The plot without title and legend."""
        return self.frame + self.drawn

    def in_page(self, frame: str) -> str:
        """Return the element for a page, which has the legend, the colours and the frame's id."""
        axes = element("use", href=f"#{frame}") if self.frame else ""
        box = f"0 0 {self.width} {self.height}"
        body = self._words() + unquoted(axes + self.drawn)
        return element("svg", body, role="img", viewBox=box)

    def standalone(self) -> str:
        """Return a separate file, with title, legend and both themes."""
        lines = self._legend_lines()
        top = 26 + _LEGEND_HEIGHT * len(lines)
        width, height = self.width + 24, self.height + top + 8
        style = f"{stylesheet('colours.css')}{stylesheet('plot.css')}"
        ground = element("rect", width=width, height=height, class_="ground")
        head = text(12, 20, self.title, class_="head")
        keys = "".join(
            element(
                "g",
                element("path", d=f"M{x} {y - 4}h14", class_="whisker")
                + element("path", d=f"M{x + 7} {y - 4}h0", class_="dots")
                + text(x + 19, y, label, class_="key"),
                class_=f"s{index}",
            )
            for row, line in enumerate(lines)
            for x, index, label in line
            for y in [40 + _LEGEND_HEIGHT * row]
        )
        marks = markers(sorted({index for index, _ in self.legend}))
        body = element("g", self.body, transform=f"translate(12 {top})")
        return element(
            "svg",
            f"{self._words()}<style>{style}</style>{marks}{ground}{head}{keys}{body}",
            xmlns="http://www.w3.org/2000/svg",
            role="img",
            width=width,
            height=height,
            viewBox=f"0 0 {width} {height}",
        )

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
    source = (TEMPLATES / name).read_text(encoding="utf-8")
    plain = re.sub(r"/\*.*?\*/", "", source, flags=re.DOTALL)
    return re.sub(r"\s*([{};,])\s*", r"\1", re.sub(r"\s+", " ", plain)).strip()


def unquoted(markup: str) -> str:
    """Leave out the quotation marks that HTML, unlike XML, does not need."""
    return _QUOTED.sub(lambda found: f"={found[1]}{' /' if found[2] else ''}", markup)
