"""Where the branches of a loss meet, and what they are called: what several losses share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def no_kinks(parameters: Mapping[str, float]) -> tuple[float, ...]:
    """There is no kink."""
    return ()


def smooth(parameters: Mapping[str, float]) -> tuple[str, ...]:
    """There is one branch."""
    return ("smooth",)


def quadratic(parameters: Mapping[str, float]) -> tuple[str, ...]:
    """There is one branch."""
    return ("quadratic",)


def kink_at_zero(parameters: Mapping[str, float]) -> tuple[float, ...]:
    """The derivative jumps at zero."""
    return (0.0,)


def linear_on_both_sides(parameters: Mapping[str, float]) -> tuple[str, ...]:
    """One branch below the kink, one above it."""
    return ("linear below", "linear above")


def difference(input: Tensor, target: Tensor, *others: Tensor) -> Tensor:
    """``input - target``."""
    return input - target


def product(input: Tensor, target: Tensor, *others: Tensor) -> Tensor:
    """``input * target``."""
    return input * target


def prediction(input: Tensor, target: Tensor, *others: Tensor) -> Tensor:
    """The prediction alone, of the shape of both."""
    return input + 0 * target
