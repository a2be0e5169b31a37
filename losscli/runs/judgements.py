"""Verdicts on times: faster, slower, impossible, or disturbed."""

from collections.abc import Mapping
from typing import Any, Final, Literal

Judgement = Literal["faster", "slower", "same", "unclear"]
FASTER: Final = "faster"
SLOWER: Final = "slower"
SAME: Final = "same"
UNCLEAR: Final = "unclear"

DIFFERENT_BEYOND = 0.01
"""Fraction by which two times must differ, with confidence, to be called different: less may come
from a buffer's address."""
SAME_WITHIN = 0.03
"""Fraction by which two times may differ, with confidence, to be called the same: three times
sampling's target, so that nearly all equal times are called equal."""

IMPOSSIBLE = "IMPOSSIBLE"
"""Stands in tables for a figure that cannot be true."""
IMPOSSIBLE_SHARE = 1.05
"""Fraction of the memory limit above which a time is impossible."""
CALL_SECONDS = 5e-6
"""Seconds by which a call may be faster than the limit, which is imprecise for few launches."""
BUSY = 0.1
"""Fraction of the cores or the GPU's time from which other programs are reported."""


def judged(low: float, high: float) -> Judgement:
    """Return the verdict of a ratio's interval; above 1 is faster."""
    if low > 1 + DIFFERENT_BEYOND:
        return FASTER
    if high < 1 / (1 + DIFFERENT_BEYOND):
        return SLOWER
    farthest = max(high, 1 / low)
    return SAME if farthest <= 1 + SAME_WITHIN else UNCLEAR


def is_busy(conditions: Mapping[str, Any]) -> bool:
    """Tell whether other programs used enough of the machine to report."""
    return (conditions.get("others") or 0.0) > BUSY
