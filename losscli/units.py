"""Units on their way in and out: sizes, bytes, seconds. Inside, everything is SI."""

from __future__ import annotations

from collections.abc import Sequence

_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
_BYTES = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def format_size(shape: Sequence[int]) -> str:
    """Return ``1024x1024``; a scalar is ``scalar``."""
    return "x".join(str(extent) for extent in shape) if shape else "scalar"


def format_seconds(seconds: float, digits: int = 4) -> str:
    """Return seconds in the unit that suits them: ``2.941 ms``."""
    for scale, unit in _TIMES:
        if abs(seconds) >= scale:
            return f"{_significant(seconds / scale, digits)} {unit}"
    return f"{_significant(seconds / 1e-9, digits)} ns"


def format_bytes(count: float) -> str:
    """Return bytes in binary units: ``4.0 GiB``."""
    for scale, unit in _BYTES:
        if abs(count) >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count:.0f} B"


def _significant(value: float, digits: int) -> str:
    """Write a number with so many significant digits, never with an exponent."""
    whole = len(str(int(abs(value))))
    return f"{value:.{max(digits - whole, 0)}f}"
