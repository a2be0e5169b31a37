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
    """Whether, for parameters, one number that is added to all of a row's prediction changes
    nothing. Then the gradient of each row sums to zero."""
    reordered: bool = False
    """Whether the classes may come in any order, the same one in all operands."""
    numbered: str = ""
    """The loss of class numbers that this one is where each row of its target is 1 for one class
    and 0 for the others; empty if there is none."""
    mirror: str = ""
    """The loss that this one is where its first two operands are exchanged, which may be itself;
    empty if there is none."""
    mirrored: Callable[[Mapping[str, float]], Mapping[str, float]] = lambda parameters: parameters
    """The parameters of the mirror, from those of the loss."""
    distance: str = ""
    """The loss of which this one differs by what does not depend on the prediction, and which is 0
    where the first two operands are equal; empty if there is none."""

    def of_form(self, prefix: str) -> Relations:
        """Return the relations of a form, whose related losses have the same prefix."""
        numbered, mirror, distance = (
            name and f"{prefix}{name}" for name in (self.numbered, self.mirror, self.distance)
        )
        return replace(self, numbered=numbered, mirror=mirror, distance=distance)
