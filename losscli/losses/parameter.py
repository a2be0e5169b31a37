"""Scalar parameters of a loss."""

import math
from dataclasses import dataclass
from random import Random

from losscli.units import format_memory


@dataclass(frozen=True)
class Parameter:
    """One scalar parameter of a loss."""

    name: str
    default: float
    minimum: float
    description: str
    example: float
    """A value for tests: not the default, and no power of two, which hides a double rounding."""
    maximum: float = math.inf
    open: bool = False
    """Whether the minimum and maximum themselves are excluded."""
    is_switch: bool = False
    is_integer: bool = False
    is_bytes: bool = False
    """Whether it is a number of bytes, where 0 means no limit."""
    other: float | None = None
    """The value in generated cases other than the default; None for 0.1 more."""
    usual: tuple[float, float] = (-math.inf, math.inf)
    """The range in which all definitions of the loss are the same."""
    absent: float | None = None
    """The value for kernels without the parameter, if not the default."""

    def check(self, value: float) -> str | None:
        """Return what is wrong with ``value``, or None."""
        inside = math.isfinite(value) and self.minimum <= value <= self.maximum
        at_end = value in self.ends
        whole = not self.is_integer or float(value).is_integer()
        if inside and whole and (at_end or not self.is_switch) and not (at_end and self.open):
            return None
        return f"{self.name} must be {self.domain}, but is {value:g}"

    def given_as(self, value: float) -> float | None:
        """Return a value as users pass it."""
        if self.is_switch:
            return bool(value)
        if self.is_bytes:
            return int(value) or None
        return int(value) if self.is_integer else value

    def written(self, value: float) -> str:
        """Return a value as printed in case names and tables."""
        if self.is_bytes:
            return format_memory(value) if value else "none"
        if self.is_integer:
            return "none" if value == self.absent else f"{value:.0f}"
        return f"{value:g}"

    @property
    def ends(self) -> tuple[float, float]:
        """The smallest and the largest value."""
        return self.minimum, self.maximum

    @property
    def domain(self) -> str:
        """The allowed values, in words."""
        if self.is_switch:
            return "0 or 1"
        if self.is_integer and self.maximum < math.inf:
            return f"an integer from {self.minimum:g} to {self.maximum:g}"
        if self.is_integer:
            return "an integer"
        bounds = []
        if self.minimum > -math.inf:
            bounds.append(f"{'above' if self.open else 'at least'} {self.minimum:g}")
        if self.maximum < math.inf:
            bounds.append(f"{'below' if self.open else 'at most'} {self.maximum:g}")
        return " and ".join(bounds) or "a finite number"

    @property
    def off_default(self) -> float:
        """A value other than the default, not exact in float32, which kernels may round."""
        if self.other is not None:
            return self.other
        return 1.0 - self.default if self.is_switch else self.default + 0.1

    def is_unusual(self, value: float) -> bool:
        """Tell whether a formula may differ at a value: out of the usual range, or at an end."""
        is_number = not self.is_switch and not self.is_integer
        is_edge = is_number and value in self.ends and value != self.default
        return is_edge or not self.usual[0] <= value <= self.usual[1]

    def drawn(self, random: Random) -> list[float]:
        """Return values across the domain, including its ends."""
        if self.is_bytes:  # of a size that no small case reaches: a smaller one may be refused
            return [self.default, self.off_default]
        ends = [end for end in self.ends if math.isfinite(end)]
        is_bounded = len(ends) == len(self.ends)
        if self.is_integer:
            ends = ends if is_bounded else []  # of all integers only int64 has an end
            others = [float(random.randrange(32)), -float(random.randrange(1, 1000))]
        elif is_bounded:
            others = [random.uniform(*ends), random.uniform(*ends)]
        else:
            small, large = 10 ** random.uniform(-3, -1), 10 ** random.uniform(0.3, 1.5)
            scale = abs(self.default) or 1.0
            # With a large negative margin the hinge is 0 everywhere, which tests nothing.
            others = [scale * small, scale * large, -scale * random.uniform(0, 2)]
        values = (*ends, *others)
        return [value for value in values if self.check(value) is None]


def switch(name: str, default: bool, description: str) -> Parameter:
    """Return a boolean parameter."""
    own, other = float(default), float(not default)
    return Parameter(name, own, 0.0, description, other, maximum=1.0, is_switch=True)
