"""The tolerance of a loss that loses digits."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Tolerance:
    """A looser tolerance than 4 ulp per element."""

    factor: float
    """Multiplies the 4 ulp; at least 1."""
    reason: str
    """The part of the formula that loses digits; shown next to the results."""

    def __post_init__(self) -> None:
        if not (self.factor >= 1 and math.isfinite(self.factor)):
            raise ValueError(f"a tolerance's factor must be at least 1, but is {self.factor:g}")
        if not self.reason:
            raise ValueError("a tolerance needs a reason")


def looser(own: Tolerance | None, roundings: int, reason: str) -> Tolerance:
    """Return a loss's tolerance with further roundings, a quarter of 4 ulp each."""
    if own is None:
        return Tolerance(1 + roundings / 4, reason)
    return Tolerance(own.factor + roundings / 4, f"{own.reason}; {reason}")
