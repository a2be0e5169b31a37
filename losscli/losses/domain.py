"""The values that a loss accepts of an operand, and how to draw them."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from losscli.machine.pytorch import Tensor

SMALLEST_POSITIVE = 2.0**-10
"""The smallest value drawn for a positive operand: every dtype holds it and its square."""


def _into_unit_interval(values: Tensor) -> Tensor:
    rest = values.abs().remainder(2.0)
    return rest.minimum(2.0 - rest)


def _into_shares(values: Tensor) -> Tensor:
    # A remainder below 1/32 would only have the digits of a difference.
    rest = (values[..., :1].sigmoid() * 30 + 1) / 32
    return values.log_softmax(-1) + (-rest).log1p()


@dataclass(frozen=True)
class Domain:
    """The values that inputs and checks may give an operand."""

    name: str
    """The values in words: ``0 to 1``."""
    of_draws: Callable[[Tensor], Tensor] = lambda values: values
    """Maps draws of a distribution to values of the domain."""
    low: float = -math.inf
    """The smallest number for which the formula is defined, inclusive."""
    high: float = math.inf
    short: tuple[float, ...] = (0.0, 1.0, -0.5, 0.25)
    """Values with few bits, so that a prediction at a kink near them is exact in every dtype."""
    at_least_loss: float = 0.0
    """The value at which a prediction has its smallest loss."""
    discrete: bool = False
    """Whether numbers between the values have no meaning."""
    always_uniform: bool = False
    """Whether all distributions draw from uniform numbers."""

    @property
    def is_real(self) -> bool:
        """Whether the formula is defined for all real numbers."""
        return self.low == -math.inf and self.high == math.inf

    @property
    def ends(self) -> tuple[float, ...]:
        """The finite ends; every distribution reaches them."""
        return tuple(end for end in (self.low, self.high) if math.isfinite(end))

    def holds(self, value: float) -> bool:
        """Tell whether the formula is defined for a number."""
        return self.low <= value <= self.high

    def inside(self, values: Tensor, margin: float = 0.0) -> Tensor:
        """Clamp values to the domain, at least ``margin`` away from its ends."""
        return values if self.is_real else values.clamp(self.low + margin, self.high - margin)


REAL = Domain("any number")
WEIGHTS = Domain("any number", short=(1.0, 0.5, 2.0, -1.0), at_least_loss=1.0)
SIGNS = Domain(
    "-1 or 1",
    lambda uniform: uniform.mul(2).floor().mul(2).sub(1),
    short=(1.0, -1.0),
    at_least_loss=1.0,
    discrete=True,
    always_uniform=True,
)
"""The formula also accepts numbers in between."""
PROBABILITIES = Domain(
    "0 to 1", _into_unit_interval, 0.0, 1.0, short=(0.0, 1.0, 0.5, 0.25), at_least_loss=1.0
)
POSITIVE = Domain(
    "above 0",
    lambda values: values.abs().clamp(min=SMALLEST_POSITIVE),
    SMALLEST_POSITIVE,
    short=(1.0, 2.0, 0.5, 0.25),
    at_least_loss=1.0,
)
COUNTS = Domain(
    "0, 1, 2, ...",
    lambda values: values.abs().mul(8).floor(),  # a draw of 1 is a count of 8
    0.0,
    short=(0.0, 1.0, 2.0, 4.0),
    at_least_loss=1.0,
    discrete=True,
)
LOG_PROBABILITIES = Domain(
    "at most 0", lambda values: -values.abs(), high=0.0, short=(0.0, -1.0, -0.5, -0.25)
)
CLASSES = Domain("a class: 0, 1, ...", low=0.0, discrete=True, always_uniform=True)
"""Class indices of a row, drawn once the number of classes is known."""
SHARES = Domain("log-probabilities of a row", _into_shares)
"""Log-probabilities of some classes; if they sum to more than 1, they are normalized."""
DISTINCT_CLASSES = replace(CLASSES, name="different classes of a row")
MASKS = Domain("true or false", low=0.0, high=1.0, discrete=True, always_uniform=True)
"""The rows that count; most do."""
