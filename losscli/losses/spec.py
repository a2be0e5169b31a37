"""What losscli knows of one loss, beside its C++ functor of the same name."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

Shape = tuple[int, ...]
LossFunction = Callable[..., "Tensor"]
"""``f(input, target, *, reduction, **parameters) -> loss``."""


@dataclass(frozen=True)
class Parameter:
    """One scalar parameter of a loss."""

    name: str
    default: float
    minimum: float
    """Smallest value allowed, inclusive."""
    description: str

    def check(self, value: float) -> str | None:
        """Return what is wrong with ``value``, or None."""
        if math.isfinite(value) and value >= self.minimum:
            return None
        bound = "a finite number" if self.minimum == -math.inf else f"at least {self.minimum:g}"
        return f"{self.name} must be {bound}, but is {value:g}"


@dataclass(frozen=True)
class LossSpec:
    """One loss: its name everywhere, its formula, and the PyTorch code that defines it."""

    name: str
    """Stem of the functor's header, name of the op, YAML key and command-line argument."""
    formula: str
    """One element's loss, as a person writes it."""
    parameters: tuple[Parameter, ...]
    reference: LossFunction
    """The plain PyTorch formula that defines the loss, differentiable, any floating dtype."""
    functional: LossFunction | None
    """torch.nn.functional's own op, where it differs from the reference."""
    default_target_shape: Callable[[Shape], Shape]
    """The shape of the target in a generated case, from the shape of the input."""
    kinks: Callable[[Mapping[str, float]], tuple[float, ...]]
    """Where the derivative jumps, in units of ``branch_coordinate``."""
    branch_coordinate: Callable[[Tensor, Tensor], Tensor]
    """The scalar that decides the branch of each element: ``input - target``, say."""
    branches: Callable[[Mapping[str, float]], tuple[str, ...]]
    """What the loss is called below, between and above its kinks: a name more than kinks."""
    sign_targets: bool = False
    """Whether generated targets are -1 or 1."""

    def resolve(self, given: Mapping[str, float]) -> dict[str, float]:
        """Return every parameter with its value, defaults filled in, in order."""
        return {p.name: float(given.get(p.name, p.default)) for p in self.parameters}


def same_shape(shape: Shape) -> Shape:
    """The target has the shape of the input."""
    return shape


def last_dimension(shape: Shape) -> Shape:
    """The target is one row, broadcast over the batch."""
    return shape[-1:]
