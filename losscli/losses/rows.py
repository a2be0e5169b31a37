"""The spec of a loss over rows: one loss for each row of logits, not for each element."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from .module import NumberedModule
from .spec import ROW, Operand, Shape, Spec, Unit

if TYPE_CHECKING:
    from torch import Tensor


def row_dimension(shape: Shape) -> int:
    """Return the dimension along which a row lies: that of the classes."""
    return min(len(shape) - 1, 1)


def of_rows(shape: Shape) -> Shape:
    """The operand has one value for each row of the prediction."""
    dimension = row_dimension(shape)
    return shape[:dimension] + shape[dimension + 1 :]


def of_classes(shape: Shape) -> Shape:
    """The operand has one value for each class, which all rows share."""
    dimension = row_dimension(shape)
    return shape[dimension : dimension + 1]


@dataclass(frozen=True, kw_only=True)
class RowLossSpec(Spec):
    """A loss of each row of its operands.

    Its operators are defined from this, and its kernels are compiled from csrc/rowwise. The forms
    in which it is tested, with a weight or without, say, are derived in ``row_forms.py``.
    """

    unit: ClassVar[Unit] = ROW
    gradient: Callable[..., Tensor]
    """The gradient of the prediction as a plain PyTorch formula,
    ``f(grad_output, *operands, reduction, **settings)``; differentiable likewise."""
    module: type[NumberedModule]
    forms: Mapping[str, tuple[Operand, ...]] = field(default_factory=dict)
    """Other operands that the functions take, by what follows the name of the loss there."""
    counts: Callable[..., Tensor] | None = None
    """``counts(*operands, **parameters)``: what each row counts in a mean; None where it is 1."""
    rounds_once: bool = True
    """Whether 16-bit results are those of float32, rounded once."""

    @property
    def settings(self) -> tuple[str, ...]:
        """The names of what its operators take after the reduction, in their order."""
        return ("ignore_index", *[parameter.name for parameter in self.parameters])

    def loss_shape(self, shapes: Sequence[Shape]) -> Shape:
        """Return the shape of the prediction without the classes."""
        return of_rows(shapes[0])

    def terms_in_sum(self, shape: Shape) -> int:
        """Return the number of classes."""
        return shape[row_dimension(shape)] if shape else 1
