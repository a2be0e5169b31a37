"""Properties of a row-wise loss that can be checked without its formula."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ..elementwise.branches import fixed

never, always = fixed(False), fixed(True)
"""Whether something holds, for any parameters."""


@dataclass(frozen=True)
class Relations:
    """How a row-wise loss responds to changes of its operands."""

    shifted: Callable[[Mapping[str, float]], bool] = never
    """Whether adding a number to a row's prediction changes nothing, so that the row's gradient
    sums to 0."""
    reordered: bool = False
    """Whether classes may be permuted in all operands."""
    numbered: str = ""
    """The class-index loss that equals this one for one-hot targets, or empty."""
    mirror: str = ""
    """The loss with the first two operands exchanged, possibly itself, or empty."""
    mirrored: Callable[[Mapping[str, float]], Mapping[str, float]] = lambda parameters: parameters
    """Returns the mirror's parameters."""
    distance: str = ""
    """A loss that differs from this one by a constant in the prediction and is 0 for equal
    operands, or empty."""

    def of_form(self, prefix: str) -> Relations:
        """Return the relations of a form, whose related losses have the same prefix."""
        numbered, mirror, distance = (
            name and f"{prefix}{name}" for name in (self.numbered, self.mirror, self.distance)
        )
        return replace(self, numbered=numbered, mirror=mirror, distance=distance)
