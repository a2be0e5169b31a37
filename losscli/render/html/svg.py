"""SVG elements as text, and scales with ticks."""

import html
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from losscli.units import format_seconds

_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
"""Characters that HTML or XML forbid, that control terminals, or that reverse text."""

Ticks = list[tuple[float, str]]
Places = Sequence[tuple[float, float]]

LETTER = 7.2
"""Pixels of a letter, rounded up."""
_BYTES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_LARGEST = 1e300
"""The end of an axis, beyond which a step would overflow."""


def printable(text: str) -> str:
    """Replace the characters that a page or plot cannot hold."""
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def escape(text: object) -> str:
    """Escape a record's text for an element or an attribute."""
    return html.escape(printable(str(text)))


def element(name: str, content: str = "", /, **attributes: object) -> str:
    """Return an element; ``content`` is markup, attributes are escaped."""
    written = {k: number(v) if isinstance(v, float) else v for k, v in attributes.items()}
    pairs = "".join(f' {key.rstrip("_")}="{escape(value)}"' for key, value in written.items())
    return f"<{name}{pairs}>{content}</{name}>" if content else f"<{name}{pairs}/>"


def text(x: float, y: float, words: object, **attributes: object) -> str:
    """Return a text that begins at a place; its class ``mid`` or ``end`` moves it."""
    return element("text", escape(words), x=x, y=y, **attributes)


def shortened(words: str, most: int = 60) -> str:
    """Cut the middle out of a long name."""
    if len(words) <= most:
        return words
    end = most // 3
    return f"{words[: most - end - 1]}…{words[-end:]}"


def number(value: float) -> str:
    """Write a coordinate in few characters."""
    return f"{value:.1f}".removesuffix(".0")


def polyline(places: Places) -> str:
    """Return the path of a line."""
    return "M" + "L".join(f"{number(x)},{number(y)}" for x, y in places)


@dataclass(frozen=True)
class Scale:
    """Maps values between ``low`` and ``high`` to pixels between ``start`` and ``end``."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """Return the pixel of a value, clipped to the ends."""
        value = min(max(value, self.low), self.high)
        part = (self._at(value) - self._at(self.low)) / (self._at(self.high) - self._at(self.low))
        return self.start + part * (self.end - self.start)

    def _at(self, value: float) -> float:
        return math.log(value) if self.log else value


@dataclass(frozen=True)
class Axis:
    """A title, the values to reach, and how ticks are chosen."""

    title: str
    ticks: Callable[[float, float], Ticks]
    log: bool = False
    low: float | None = None
    """The lower end; None is the least value, with some room."""
    step: float = 0.0
    """The upper end is a multiple of this: plots of about the same values have equal axes."""

    def scale(self, values: Iterable[float], start: float, end: float) -> Scale:
        """Return a scale with room for values."""
        known = [value for value in values if math.isfinite(value) and (value > 0 or not self.log)]
        low = self.low if self.low is not None else min(known, default=1.0)
        high = max(known, default=low)
        high = math.ceil(high / self.step - 1e-9) * self.step if self.step else high
        if self.log:
            room = math.exp(0.04 * (math.log(high) - math.log(low))) if high > low else 2.0
            low = low if self.low is not None else max(low, room / _LARGEST) / room
            high = min(high, _LARGEST / room) * room
        if high <= low:
            high = low * 2 if self.log else low + 1
        return Scale(low, high, start, end, self.log)


def upright(ticks: Ticks, across: Scale, top: float, bottom: float) -> str:
    """Return the path of a vertical line at each tick."""
    return "".join(f"M{number(across(value))},{top}V{bottom}" for value, _ in ticks)


def below(ticks: Ticks, across: Scale, y: float, width: float) -> str:
    """Return the words of ticks in a line, kept within a width."""
    centres = ((_within(across(value), words, 0, width), words) for value, words in ticks)
    return "".join(text(x, y, words, class_="mid") for x, words in centres)


def spaced(ticks: Ticks, scale: Scale) -> Ticks:
    """Drop ticks whose words would overlap the ones before."""
    kept: Ticks = []
    end = -math.inf
    for value, words in ticks:
        middle = _within(scale(value), words, scale.start, scale.end)
        half = LETTER * len(words) / 2
        if middle - half > end:
            kept.append((value, words))
            end = middle + half + 4
    return kept


def _within(middle: float, words: str, start: float, end: float) -> float:
    """Return the centre of words that keeps them between two places."""
    half = LETTER * len(words) / 2
    return min(max(middle, start + half), max(end - half, start + half))


def byte_ticks(low: float, high: float) -> Ticks:
    """Return at most seven powers of two: ``32 KiB``."""
    first, last = math.ceil(math.log2(low)), math.floor(math.log2(high))
    step = next((s for s in (1, 2, 3, 5, 10) if (last - first) / s <= 6), 20)
    found = []
    for power in range(first, last + 1):
        if power % step == 0:
            unit = min(max(power, 0) // 10, len(_BYTES) - 1)
            found.append((2.0**power, f"{2.0 ** (power - 10 * unit):g} {_BYTES[unit]}"))
    if len(found) < 2:
        unit = max(first, 0) // 10
        least = linear_ticks(low / 2.0 ** (10 * unit), high / 2.0 ** (10 * unit))
        found = [(value * 2.0 ** (10 * unit), f"{text} {_BYTES[unit]}") for value, text in least]
    return found


def second_ticks(low: float, high: float) -> Ticks:
    """Return powers of ten, or more round numbers if there are few: ``10 us``."""

    def text(seconds: float) -> str:
        number, unit = format_seconds(seconds * (1 + 1e-9)).split()
        return f"{float(number):g} {unit}"

    return _powers(low, high, text, 2)


def log_ticks(low: float, high: float) -> Ticks:
    """Return powers of ten, or more round numbers if there are few."""
    return _powers(low, high, _plain, 3)


def ratio_ticks(low: float, high: float) -> Ticks:
    """Return round ratios, including 1: ``2x``."""
    found = _round(low, high)
    if len(found) > 9:
        found = _decades(low, high)
    close = [n for n in range(-9, 20) if low <= 1 + n / 10 <= high] if len(found) < 3 else []
    step = next(step for step in (1, 2, 5) if len(close) <= 6 * step)
    extra = [(1 + n / 10, f"{1 + n / 10:.1f}x") for n in close if n % step == 0]
    return extra if len(extra) > 2 else [(value, f"{_plain(value)}x") for value in found]


def linear_ticks(low: float, high: float, suffix: str = "") -> Ticks:
    """Return about six round numbers."""
    span = (high - low) / 6
    power = 10.0 ** math.floor(math.log10(span))
    step = next(n * power for n in (1, 2, 5, 10) if n * power >= span * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [(n * step, f"{n * step:g}{suffix}") for n in range(first, last + 1)]


def percent_ticks(low: float, high: float) -> Ticks:
    """Return about five round percentages."""
    return [(value / 100, text) for value, text in linear_ticks(100 * low, 100 * high, " %")]


def _decades(low: float, high: float) -> list[float]:
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    step = max((last - first) // 8 + 1, 1)
    return [10.0**power for power in range(first, last + 1, step)]


def _round(low: float, high: float) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    values = (float(f"{n}e{power}") for power in powers for n in (1, 2, 5))
    return [value for value in values if low <= value <= high]


def _powers(low: float, high: float, text: Callable[[float], str], least: int) -> Ticks:
    """Return powers of ten, else 1, 2 and 5 times these, or round numbers of a narrow range."""
    for found, enough in ((_decades(low, high), least), (_round(low, high), 2)):
        if len(found) >= enough:
            return [(value, text(value)) for value in found]
    close = {text(value): value for value, _ in linear_ticks(low, high)}
    return [(value, words) for words, value in close.items()]


def short_exponent(value: float) -> str:
    """Return ``1e6``, not ``1e+06``."""
    digits, _, power = f"{value:.0e}".partition("e")
    return f"{digits}e{int(power)}"


def _plain(value: float) -> str:
    if value >= 1e5:
        return short_exponent(value)
    return f"{value:,.0f}" if value >= 10000 else f"{value:g}"
