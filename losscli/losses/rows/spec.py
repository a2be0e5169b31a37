"""The spec of a loss over rows: one loss for each row of logits, not for each element."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

from ..module import NumberedModule
from ..spec import ROW, Operand, Shape, Spec, Unit

if TYPE_CHECKING:
    from torch import Tensor

Content = Literal["logits", "vectors", "scores"]
LOGITS: Content = "logits"
VECTORS: Content = "vectors"
SCORES: Content = "scores"
"""What rows hold: logits, of which a softmax is taken; vectors with a length; numbers that are
compared or picked."""


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
class RowSpec(Spec):
    """A loss of each row of its operands.

    Cases, oracle and checks ask this alone; how the kernels are made is a matter of its subclasses.
    """

    unit: ClassVar[Unit] = ROW
    module: type[NumberedModule]
    holds: Content = LOGITS
    """What the rows are, from which checks take the values that need care."""
    counts: Callable[..., Tensor] | None = None
    """``counts(*operands, **parameters)``: what each row counts in a mean; None where it is 1."""
    rounds_once: bool = True
    """Whether 16-bit results are those of float32, rounded once."""
    factors: int = 3
    """How many operands together have products that may be out of range by themselves."""
    squares: bool = False
    """Whether the loss adds up squares of its operands, which have to be in range."""
    from_kinks: Callable[..., tuple[Tensor, ...]] | None = None
    """``from_kinks(*operands, **parameters)``: how far elements of the prediction lie above those
    values of theirs where the derivative jumps, one tensor for each such value; None without."""
    undecided: Callable[..., Mapping[str, Tensor]] | None = None
    """``undecided(*operands, dtype, ulp, **parameters)``: by how much the derivative for each
    element of an operand may be off, by the operand's name, because rounding decides the sign of a
    difference. ``dtype`` is what the loss is computed in, ``ulp`` what a sum over a row and a
    handful of roundings may lose in it."""
    most_dimensions: int | None = None
    """The most dimensions of the prediction; None for any number."""
    values: int = 1
    """How many losses a row has; several lie in a dimension in front of the rows."""

    def row_dimension(self, dimensions: int) -> int:
        """Return the dimension along which a row lies: that of the classes."""
        return min(dimensions - 1, 1)

    def rows_shape(self, shape: Shape) -> Shape:
        """Return the shape of the rows: that of the prediction without the dimension of one."""
        dimension = self.row_dimension(len(shape))
        return shape[:dimension] + shape[dimension + 1 :]

    def loss_shape(self, shapes: Sequence[Shape]) -> Shape:
        """Return the shape of the rows, behind that of the values of each."""
        rows = self.rows_shape(shapes[0])
        return rows if self.values == 1 else (self.values, *rows)

    def terms_in_sum(self, shape: Shape) -> int:
        """Return the length of a row."""
        return shape[self.row_dimension(len(shape))] if shape else 1


@dataclass(frozen=True, kw_only=True)
class RowLossSpec(RowSpec):
    """A loss over rows with operators of its own.

    These are defined from this, and its kernels are compiled from csrc/rows. The forms in which
    it is tested, with a weight or without, say, are derived in ``row_forms.py``.
    """

    gradient: Callable[..., Tensor]
    """The gradient of the prediction as a plain PyTorch formula,
    ``f(grad_output, *operands, reduction, **settings)``; differentiable likewise."""
    forms: Mapping[str, tuple[Operand, ...]] = field(default_factory=dict)
    """Other operands that the functions take, by what follows the name of the loss there."""

    @property
    def settings(self) -> tuple[str, ...]:
        """The names of what its operators take after the reduction, in their order."""
        return ("ignore_index", *[parameter.name for parameter in self.parameters])


def counts_of_classes(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    **_: float,
) -> Tensor:
    """Return what each row counts in a mean over class numbers: the weight of its class."""
    import torch

    kept = target != ignore_index
    ones = torch.ones_like(target, dtype=input.dtype)
    found = ones if weight is None else weight[torch.where(kept, target, 0).long()]
    return torch.where(kept, found, torch.zeros_like(found))
