"""Verdicts on times: faster, slower, impossible, or disturbed."""

from collections.abc import Mapping
from typing import Any, Final, Literal

Judgement = Literal["faster", "slower", "same", "unclear"]
FASTER: Final = "faster"
SLOWER: Final = "slower"
SAME: Final = "same"
UNCLEAR: Final = "unclear"

DIFFERENT_BEYOND = 0.01
"""Part by which two times have to differ, with confidence, to be called different: less comes from
where a buffer happens to lie."""
SAME_WITHIN = 0.03
"""Part that two times differ by at most, with confidence, to be called the same: three times what
sampling stops at, so that of equal ones nearly all are found equal."""

IMPOSSIBLE = "IMPOSSIBLE"
"""What stands in tables in the place of a figure that cannot be true."""
IMPOSSIBLE_SHARE = 1.05
"""Part of the memory limit above which a time is impossible."""
CALL_SECONDS = 5e-6
"""Seconds by which a call may be faster than the limit: no share of a limit of a few launches says
anything about the memory."""
BUSY = 0.1
"""Part of the CPU's cores, or of a GPU's time, above which the use by other programs is told."""


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
