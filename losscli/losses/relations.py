"""What holds for a loss over rows whatever its formula is, and so can be checked without it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass


def never(parameters: Mapping[str, float]) -> bool:
    """Return that it holds for no parameters."""
    return False


@dataclass(frozen=True)
class Relations:
    """What changes of its operands do to a loss over rows."""

    shifted: Callable[[Mapping[str, float]], bool] = never
    """Whether, for parameters, one number that is added to all of a row's prediction changes
    nothing. Then the gradient of each row sums to zero."""
    reordered: bool = False
    """Whether the classes may come in any order, the same one in all operands."""
    numbered: str = ""
    """The loss of class numbers that this one is where each row of its target is 1 for one class
    and 0 for the others; empty if there is none."""
