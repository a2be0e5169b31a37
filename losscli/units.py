"""Reads and writes units. Inside losscli every value is in SI units."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence

from losscli.errors import UsageError

_PREFIXES = ((1.0, ""), (1e-3, "m"), (1e-6, "u"), (1e-9, "n"))
_DURATIONS = {"": 1.0, "m": 60.0} | {f"{prefix}s": scale for scale, prefix in _PREFIXES}
_BYTES = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))

_MEMORY = {"GB": 10**9, "MB": 10**6, "kB": 10**3, "B": 1}
_MEMORY_UNITS = {
    "": 1,
    "tb": 10**12,
    **{unit.lower(): scale for unit, scale in _MEMORY.items()},
    **{name: scale for scale, unit in _BYTES for name in (unit.lower(), unit[0].lower())},
}
"""GB is 10^9 bytes and GiB 2^30, as is G alone, because 1K of a size is 1024."""


def first_of(names: Iterable[str], most: int) -> str:
    """Return the first names and how many more there are: ``a, b and 3 more``."""
    named = list(names)
    more = f" and {len(named) - most} more" if len(named) > most else ""
    return ", ".join(named[:most]) + more


def format_size(shape: Sequence[int]) -> str:
    """Return ``1024x1024``; a scalar is ``scalar``."""
    return "x".join(str(extent) for extent in shape) if shape else "scalar"


def format_seconds(seconds: float, digits: int = 4) -> str:
    """Return ``2.941 ms``."""
    return _in_prefixed(seconds, "s", digits)


def format_joules(joules: float) -> str:
    """Return ``54.1 mJ``."""
    return _in_prefixed(joules, "J", 3)


def format_duration(seconds: float) -> str:
    """Return an estimate: ``40 s``, ``3 min`` or ``2 h 10 min``."""
    if seconds < 90:
        return f"{math.ceil(seconds)} s"
    if (minutes := round(seconds / 60)) < 90:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min" if minutes % 60 else f"{minutes // 60} h"


def format_bytes(count: float) -> str:
    """Return ``4.0 GiB``."""
    for scale, unit in _BYTES:
        if abs(count) >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count:.0f} B"


def format_memory(count: float) -> str:
    """Return ``1.2GB``, as :func:`parse_memory` reads."""
    unit, scale = next(item for item in _MEMORY.items() if count >= item[1] or item[1] == 1)
    return f"{count / scale:.10g}{unit}"


def parse_memory(text: str) -> float:
    """Parse ``1.2GB``, ``300 MB``, ``1GiB``, ``4G`` or bare bytes; UsageError for anything else."""
    if (number := _parsed(text.lower(), _MEMORY_UNITS)) is None:
        raise UsageError(f"'{text}' is not a number of bytes. Write 1.2GB, 300MB or 1GiB.")
    return float(round(number))


def parse_seconds(text: str) -> float:
    """Parse ``0.2s``, ``10 ms``, ``1m`` (a minute) or bare seconds."""
    if (seconds := _parsed(text, _DURATIONS)) is None:
        raise UsageError(f"'{text}' is not a duration. Write 0.2s, 50ms or 1m.")
    return seconds


def _parsed(text: str, units: Mapping[str, float]) -> float | None:
    match = re.fullmatch(r"\s*([0-9.eE+-]+?)\s*([a-zA-Z]*)\s*", text)
    number = finite(match[1]) if match else None
    scale = units.get(match[2]) if match else None
    return None if number is None or scale is None or number < 0 else number * scale


def parse_fraction(text: str) -> float:
    """Parse ``1%`` or ``0.01``, between 0 and 1."""
    stripped = text.strip()
    number = finite(stripped.removesuffix("%").rstrip())
    if number is not None and stripped.endswith("%"):
        number /= 100
    if number is None or not 0 < number < 1:
        raise UsageError(f"'{text}' is not a fraction between 0 and 1. Write 1% or 0.01.")
    return number


def format_ulp(ulp: float | None) -> str:
    """Return an error in at most five characters."""
    if ulp is None:
        return ""
    if ulp in (0.0, math.inf):
        return f"{ulp:g}"
    if ulp < 10:
        return f"{ulp:.2f}"
    return f"{ulp:.0f}" if ulp < 10000 else f"{ulp:.0e}"


def figure(value: float) -> str:
    """Return a number in about five characters."""
    digits = max(3 - len(str(int(value))), 0)
    return f"{value:.{digits}f}" if value < 1e5 else f"{value:.0e}"


def finite(text: str) -> float | None:
    """Return a finite number, or None."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _in_prefixed(value: float, unit: str, digits: int) -> str:
    scale, prefix = next((each for each in _PREFIXES if abs(value) >= each[0]), _PREFIXES[-1])
    whole = len(str(int(abs(value / scale))))
    return f"{value / scale:.{max(digits - whole, 0)}f} {prefix}{unit}"
