"""Tensor operands of a loss."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from losscli.machine.pytorch import Tensor

from .domain import REAL, Domain
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
