"""What a spec consists of: operands, parameters, tolerances, and properties for checks."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Literal, Self

from losscli.machine.pytorch import Tensor
from losscli.units import format_memory

from .domain import REAL, Domain
from .formulas import never
from .shapes import Shape

DtypeKind = Literal["floating", "class indices", "mask"]
FLOATING: DtypeKind = "floating"
CLASS_INDICES: DtypeKind = "class indices"
MASK: DtypeKind = "mask"
"""An operand's dtype: the case's, integers that are class indices, or bool."""


def same_shape(shape: Shape) -> Shape:
    """Return the shape of the prediction."""
    return shape


def last_dimension(shape: Shape) -> Shape:
    """Return the shape of one row."""
    return shape[-1:]


@dataclass(frozen=True)
class Operand:
    """One tensor operand, in the order of the C++ header's signature."""

    name: str
    description: str = ""
    """Its role in words: ``predictions``."""
    differentiable: bool = True
    torch_differentiates: bool = True
    """Whether PyTorch's own function computes its gradient rather than raising."""
    shape: Callable[[Shape], Shape] = same_shape
    """Maps a generated case's shape (the prediction's, except for hidden states) to its own."""
    factor: Callable[[Shape], float] = lambda shape: 1.0
    """Maps a generated case's shape to a factor of its values."""
    domain: Domain = REAL
    """The values that inputs are drawn from and checks stay within."""
    refused: bool = False
    """Whether PyTorch rejects values outside the domain; its assertion makes a GPU unusable."""
    integers: bool = True
    """Whether it may hold integers, which have no gradient."""
    least: float = -math.inf
    """The smallest accepted value; below it the loss is NaN, or ValueError on the CPU."""
    smooth: Domain | None = None
    """Where finite differences approximate the derivatives, if not in the whole domain."""
    kind: DtypeKind = FLOATING
    """Its kind of dtype. Class indices have no gradient or domain; the case has the classes."""
    shared: bool = False
    """Whether all rows of a row-wise loss share it."""
    form: str = ""
    """The prefix of the form with it, if calls may leave it out; else empty."""
    composed: bool = False
    """Whether PyTorch's operators, not kernels, compute its gradient."""
    labels: bool = False
    """Whether the loss is meant for 0 and 1; third-party files need not take other numbers."""
    roundings: int = 0
    """Roundings it adds to the four of a row-wise loss or its gradient."""

    @property
    def optional(self) -> bool:
        """Whether calls may leave it out."""
        return bool(self.form)

    def smoothed(self, values: Tensor, margin: float = 0.0) -> Tensor:
        """Clamp values to where the loss is smooth, with a margin."""
        return (self.smooth or self.domain).inside(values, margin)


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
        is_edge = is_number and value in (*self.ends, *self.usual) and value != self.default
        return is_edge or not self.usual[0] <= value <= self.usual[1]

    def drawn(self, random: Random) -> list[float]:
        """Return values across the domain, including its ends and those of the usual range."""
        if self.is_bytes:  # of a size that no small case reaches: a smaller one may be refused
            return [self.default, self.off_default]
        ends = [end for end in dict.fromkeys((*self.ends, *self.usual)) if math.isfinite(end)]
        is_bounded = all(map(math.isfinite, self.ends))
        if self.is_integer:
            ends = ends if is_bounded else []  # of all integers only int64 has an end
            others = [float(random.randrange(32)), -float(random.randrange(1, 1000))]
        elif is_bounded:
            others = [random.uniform(*self.ends) for _ in range(2)]
        else:
            small, large = 10 ** random.uniform(-3, -1), 10 ** random.uniform(0.3, 1.5)
            scale = abs(self.default) or 1.0
            # With a large negative margin the hinge is 0 everywhere, which tests nothing.
            others = [scale * small, scale * large, -scale * random.uniform(0, 2)]
        return [value for value in (*ends, *others) if self.check(value) is None]


def switch(name: str, default: bool, description: str) -> Parameter:
    """Return a boolean parameter."""
    own, other = float(default), float(not default)
    return Parameter(name, own, 0.0, description, other, maximum=1.0, is_switch=True)


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


LOSS = "loss"
"""The loss itself, among terms and derivatives."""


@dataclass(frozen=True)
class Terms:
    """The terms that cancel in a loss or its derivatives.

    Errors are measured in ulp of the largest term, or of the result if that is larger, because the
    last digits of a small difference cannot be computed.
    """

    of: Callable[..., Mapping[str, Tensor]]
    """``of(*operands, **parameters)``: the magnitude of each element's largest term, in the
    operands' dtype: ``LOSS`` for the loss, an operand's name for its derivative at grad_output 1.
    Missing ones have no such terms."""
    reason: str


@dataclass(frozen=True)
class Relations:
    """Properties of a row-wise loss that checks may use."""

    shifted: Callable[[Mapping[str, float]], bool] = never
    """Whether adding a number to a row's prediction changes nothing: its gradient sums to 0."""
    reordered: bool = False
    """Whether classes may be permuted in all operands."""
    numbered: str = ""
    """The class-index loss that equals this one for one-hot targets, or empty."""
    mirror: str = ""
    """The loss with the first two operands exchanged, possibly itself, or empty."""
    mirrored: Callable[[Mapping[str, float]], Mapping[str, float]] = lambda parameters: parameters
    """Returns the mirror's parameters."""
    distance: str = ""
    """A loss that is this one plus a constant in the prediction, 0 for equal operands; or empty."""

    def of_form(self, prefix: str) -> Self:
        """Return a form's relations, to losses with the same prefix."""
        numbered, mirror, distance = (
            name and f"{prefix}{name}" for name in (self.numbered, self.mirror, self.distance)
        )
        return replace(self, numbered=numbered, mirror=mirror, distance=distance)
