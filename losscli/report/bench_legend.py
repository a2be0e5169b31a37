"""The legend of a bench table: what its columns and marks mean."""

from __future__ import annotations

from collections.abc import Collection

COLUMNS = {
    "median": "median, p20-p80: time of a call",
    "GB/s": "GB/s: the fewest bytes of the pass over the median",
    "% of\nlimit": "% of limit: that over the speed of kernels that only move these bytes",
    "host": "host: how long a call keeps the host busy",
    "vs ref": "vs ref: the time of the reference over this one",
    "ulp": "ulp: the largest error in units in the last place; 2 of a mean or sum and 4 of an "
    "element always pass",
    "extra": "extra: memory beyond inputs, loss and gradient",
}
"""What the columns mean, by header."""
MARKS = {"=": "=: as fast", "?": "?: too few or too scattered samples to decide"}


def text(headers: Collection[str], marks: Collection[str], own: bool) -> str:
    """Return the legend of the columns with these headers.

    Args:
        headers: of the columns that are shown.
        marks: that stand before ratios.
        own: whether losscli's own kernel has a row.
    """
    parts = [meaning for header, meaning in COLUMNS.items() if header in headers]
    parts += [meaning for mark, meaning in MARKS.items() if mark in marks]
    return "; ".join([*parts, *["custom: losscli's own kernel"] * own])
