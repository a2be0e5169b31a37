"""Elements of SVG as text, and a plot: what stands in a page or in a file of its own."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from losscli.render.html.scales import LETTER, Scale, Ticks, within

_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
"""What neither HTML nor XML may hold, what a terminal obeys, and what turns text around."""
STYLES: Final = 10
"""Number of colours that implementations have."""
_ANCHORS = {"middle": "mid", "end": "end"}
"""Classes of texts that do not begin at their place."""
_QUOTED = re.compile(r'="([\w.#-]+)"(/?)')
"""What HTML, unlike XML, takes without quotes."""
_LEGEND_HEIGHT = 22


def printable(text: str) -> str:
    """Replace the characters that a page or a plot does not hold."""
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def escape(text: object) -> str:
    """Return a text of a record so that it is no markup, in an element or an attribute."""
    return html.escape(printable(str(text)))


def element(name: str, content: str = "", /, **attributes: object) -> str:
    """Return an element; ``content`` is markup, attributes are escaped.

    ``class_`` is the attribute ``class``, and ``_`` within a name stands for ``-``.
    """
    pairs = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_short(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{pairs}>{content}</{name}>" if content else f"<{name}{pairs}/>"


def text(x: float, y: float, words: object, **attributes: object) -> str:
    """Return a text at a place; ``anchor`` is ``middle`` or ``end``, else it begins there."""
    kinds = (attributes.pop("class_", None), _ANCHORS.get(str(attributes.pop("anchor", ""))))
    name = " ".join(str(kind) for kind in kinds if kind) or None
    return element("text", escape(words), x=x, y=y, class_=name, **attributes)


def shortened(words: str, most: int = 60) -> str:
    """Cut the middle out of a long name, so that it stays within a plot."""
    if len(words) <= most:
        return words
    end = most // 3
    return f"{words[: most - end - 1]}…{words[-end:]}"


def number(value: float) -> str:
    """Write a coordinate in few characters."""
    return f"{value:.1f}".removesuffix(".0")


def dots(places: Sequence[tuple[float, float]]) -> str:
    """Return the path whose round ends are dots."""
    return "".join(f"M{x:.0f} {y:.0f}h0" for x, y in dict.fromkeys(places))


def polyline(places: Sequence[tuple[float, float]]) -> str:
    """Return the path of a line."""
    return "M" + "L".join(f"{number(x)} {number(y)}" for x, y in places)


def upright(ticks: Ticks, across: Scale, top: float, bottom: float) -> str:
    """Return the path of an upright line at each tick."""
    return "".join(f"M{number(across(value))} {top}V{bottom}" for value, _ in ticks)


def below(ticks: Ticks, across: Scale, y: float, width: float) -> str:
    """Return the words of ticks in a line, moved to lie within a width."""
    return "".join(
        text(within(across(value), words, 0, width), y, words, anchor="middle")
        for value, words in ticks
    )


def _short(value: object) -> object:
    return number(value) if isinstance(value, float) else value


@dataclass(frozen=True)
class Plot:
    """A picture with its words: pure SVG, whose colours are variables of the page's style."""

    name: str
    """The name that ``losscli report --plot`` takes."""
    title: str
    description: str
    """What a reader who does not see it is told."""
    width: int
    height: int
    body: str
    legend: tuple[tuple[int, str], ...] = ()
    """The colour of each implementation that the plot has."""

    def in_page(self) -> str:
        """Return the element for a page, in as few characters as HTML allows."""
        box = f"0 0 {self.width} {self.height}"
        whole = element("svg", self._words() + self.body, role="img", viewBox=box)
        return _QUOTED.sub(lambda found: f"={found[1]}{' /' if found[2] else ''}", whole)

    def standalone(self) -> str:
        """Return a file of its own, with title, legend and both themes."""
        lines = self._legend_lines()
        top = 26 + _LEGEND_HEIGHT * len(lines)
        width, height = self.width + 24, self.height + top + 8
        style = f"{stylesheet('colours.css')}{stylesheet('plot.css')}"
        ground = element("rect", width=width, height=height, class_="ground")
        head = text(12, 20, self.title, class_="head")
        keys = "".join(
            element(
                "g",
                element("path", d=f"M{x} {y - 4}h14", class_="line")
                + text(x + 19, y, label, class_="key"),
                class_=f"s{index}",
            )
            for row, line in enumerate(lines)
            for x, index, label in line
            for y in [40 + _LEGEND_HEIGHT * row]
        )
        body = element("g", self.body, transform=f"translate(12 {top})")
        return element(
            "svg",
            f"{self._words()}<style>{style}</style>{ground}{head}{keys}{body}",
            xmlns="http://www.w3.org/2000/svg",
            role="img",
            width=width,
            height=height,
            viewBox=f"0 0 {width} {height}",
        )

    def _words(self) -> str:
        return element("title", escape(self.title)) + element("desc", escape(self.description))

    def _legend_lines(self) -> list[list[tuple[int, int, str]]]:
        """Return the place, colour and name of each implementation, in lines that fit."""
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
    """Return a style sheet of the templates, without comments and needless space."""
    source = files("losscli.render.html").joinpath("templates", name).read_text(encoding="utf-8")
    plain = re.sub(r"/\*.*?\*/", "", source, flags=re.DOTALL)
    return re.sub(r"\s*([{};,])\s*", r"\1", re.sub(r"\s+", " ", plain)).strip()
