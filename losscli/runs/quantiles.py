"""Quantiles of samples."""

from __future__ import annotations

import math
from collections.abc import Sequence


def quantile(ordered: Sequence[float], fraction: float) -> float:
    """Return the quantile of sorted samples by linear interpolation."""
    position = fraction * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])
