"""Draws samples as ticks, one line a process, by their distance from the median."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from losscli.render.html import svg
from losscli.render.html.scales import Scale, percent_ticks, spaced
from losscli.render.html.svg import Plot
from losscli.views.phrases import count

WIDTH = 440
_LABEL, _PROCESS, _GAP = 31, 9, 8
_TOP, _BOTTOM = 4, 34
_LEAST = 0.005
"""Distance from the median that the axis reaches at least."""


@dataclass(frozen=True)
class Strip:
    """The samples of one result: each process a list of distances, as parts of the median."""

    style: int
    label: str
    value: str
    """The median, as people read it."""
    processes: tuple[tuple[float, ...], ...]
    middle: tuple[float, float]
    """p20 and p80."""


def strip_plot(name: str, title: str, strips: Sequence[Strip]) -> Plot:
    """Draw strips on one axis; what lies farther out is drawn at its end and counted."""
    reach = reach_of(strips)
    low = max(-reach, -1.0)  # no sample takes less than nothing
    across = Scale(low, reach, 8, WIDTH - 8)
    height = _TOP + sum(map(_height, strips)) + _BOTTOM
    bottom = height - _BOTTOM
    ticks = spaced(percent_ticks(low, reach), across)
    parts = [svg.element("path", d=svg.upright(ticks, across, _TOP, bottom), class_="grid")]
    parts += [svg.element("path", d=f"M{svg.number(across(0))} {_TOP}V{bottom}", class_="base")]
    y = float(_TOP)
    for strip in strips:
        parts.append(_strip(strip, y, across, reach))
        y += _height(strip)
    parts.append(svg.below(ticks, across, bottom + 14, WIDTH))
    parts += [svg.text(WIDTH / 2, height - 4, "distance from the median", anchor="middle")]
    description = "; ".join(f"{s.label} {s.value}, {_size(s, reach)}" for s in strips[:12])
    return Plot(name, title, description, WIDTH, round(height), "".join(parts))


def _height(strip: Strip) -> int:
    return _LABEL + _PROCESS * len(strip.processes) + _GAP


def _strip(strip: Strip, y: float, across: Scale, reach: float) -> str:
    parts = [svg.text(8, y + 12, svg.shortened(strip.label), class_="name")]
    parts += [svg.text(8, y + 26, f"{strip.value}, {_size(strip, reach)}", class_="over")]
    y += _LABEL
    low, high = (across(part) for part in strip.middle)
    height = _PROCESS * len(strip.processes)
    words = svg.element("title", svg.escape(f"p20 to p80 of {strip.label}"))
    parts += [
        svg.element("rect", words, x=low, y=y, width=high - low, height=height, class_="band")
    ]
    for samples in strip.processes:
        parts.append(svg.element("path", d=_ticks(samples, across, y + 1, 7), class_="tick"))
        y += _PROCESS
    return svg.element("g", "".join(parts), class_=f"s{strip.style}")


def sparkline(strip: Strip, reach: float) -> str:
    """Return the ticks of a strip in few characters and without words, for a cell of a table."""
    width, height = 90, 7 * len(strip.processes) + 1
    across = Scale(-reach, reach, 1, width - 1)
    paths = "".join(
        _ticks(samples, across, 7 * index + 1, 6) for index, samples in enumerate(strip.processes)
    )
    return (
        f"<svg class=sp width={width} height={height} aria-hidden=true>"
        f'<path class=tick d="{paths}"/></svg>'
    )


def reach_of(strips: Sequence[Strip]) -> float:
    """Return the distance from the median that an axis of strips reaches."""
    far = max((abs(part) for strip in strips for part in strip.middle), default=0.0)
    farthest = max((abs(p) for s in strips for each in s.processes for p in each), default=0.0)
    return max(min(farthest * 1.03, far * 4), _LEAST)


def _ticks(samples: Sequence[float], across: Scale, y: float, height: int) -> str:
    """Return the path of ticks; relative moves take fewer characters."""
    path, at = "", 0
    for place in sorted({round(across(sample)) for sample in samples}):
        start = f"m{place - at}-{height}" if path else f"M{place} {svg.number(y)}"
        path += f"{start}v{height}"
        at = place
    return path


def _size(strip: Strip, reach: float) -> str:
    """Say how many samples there are, and how many lie beyond the axis."""
    samples = [sample for each in strip.processes for sample in each]
    beyond = sum(abs(sample) > reach for sample in samples)
    size = count(len(samples), "sample")
    return f"{size}, {beyond} at the ends or beyond" if beyond else size


def distances(samples: Sequence[float], median: float) -> tuple[float, ...]:
    """Return samples as parts of the median by which they are longer."""
    return tuple(sample / median - 1 for sample in samples if math.isfinite(sample))
