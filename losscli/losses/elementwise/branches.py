"""The coordinates that select a loss's branch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from losscli.machine.pytorch import Tensor

Value = TypeVar("Value")


def fixed(value: Value) -> Callable[[Mapping[str, float]], Value]:
    """Return a function that ignores parameters and returns ``value``."""
    return lambda parameters: value


never, always = fixed(False), fixed(True)
"""Whether something holds, for any parameters."""
NO_KINKS: Callable[[Mapping[str, float]], tuple[float, ...]] = fixed(())
SMOOTH, QUADRATIC = fixed(("smooth",)), fixed(("quadratic",))
"""Branch names of smooth losses."""
KINK_AT_ZERO = fixed((0.0,))
LINEAR_ON_BOTH_SIDES = fixed(("linear below", "linear above"))


def difference(input: Tensor, target: Tensor, *others: Tensor) -> Tensor:
    """``input - target``."""
    return input - target


def product(input: Tensor, target: Tensor, *others: Tensor) -> Tensor:
    """``input * target``."""
    return input * target


def prediction(input: Tensor, target: Tensor, *others: Tensor) -> Tensor:
    """The prediction, in the broadcast shape."""
    return input + 0 * target
