"""The spec of a row-wise loss.

``csrc/losses/rows/HEADER.h`` computes a row, and the loss's file has its spec; operators, kernels,
bindings, fake implementations and tests follow from both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ..domain import CLASSES, POSITIVE, Domain
from ..spec import CLASS_NUMBERS, MASK, ROW, Operand, Shape, Spec, Unit, same_shape

if TYPE_CHECKING:
    from torch import Tensor

Content = Literal["logits", "vectors", "scores"]
LOGITS: Content = "logits"
VECTORS: Content = "vectors"
SCORES: Content = "scores"
"""What rows hold: logits, of which a softmax is taken; vectors with a length; numbers that are
compared or picked."""


def row_dimension(shape: Shape) -> int:
    """Return the class dimension."""
    return min(len(shape) - 1, 1)


def of_rows(shape: Shape) -> Shape:
    """The operand has one value per row of the prediction."""
    dimension = row_dimension(shape)
    return shape[:dimension] + shape[dimension + 1 :]


def of_classes(shape: Shape) -> Shape:
    """The operand has one value per class, shared by all rows."""
    dimension = row_dimension(shape)
    return shape[dimension : dimension + 1]


def of_last_rows(shape: Shape) -> Shape:
    """The operand has one value per row along the last dimension."""
    return shape[:-1]


def class_numbers(
    name: str,
    shape: Callable[[Shape], Shape],
    description: str = "class numbers",
    domain: Domain = CLASSES,
) -> Operand:
    """Return an operand of class indices."""
    return Operand(
        name, description, differentiable=False, shape=shape, domain=domain, kind=CLASS_NUMBERS
    )


def number_of_one_row(target: Tensor) -> Tensor:
    """Return a single row's class index; PyTorch also accepts a batch of one."""
    return target.squeeze(0) if target.shape == (1,) else target


def class_weight(shape: Callable[[Shape], Shape], **fields: Any) -> Operand:
    """Return the optional operand with a factor per class."""
    return Operand(
        *("weight", "of each class"),
        shape=shape,
        domain=POSITIVE,
        shared=True,
        optional=True,
        **fields,
    )


@dataclass(frozen=True, kw_only=True)
class RowSpec(Spec):
    """A loss of each row of its operands.

    Row operands come first, those with kernel gradients before the others. The reference takes all
    operands in order, with ``None`` for missing ones.
    """

    unit: ClassVar[Unit] = ROW
    header: str = ""
    """The stem of the loss's header, where that is not its name."""
    form_of: str = ""
    """The name of the loss of which this is a form; empty where it is none."""
    forms: Mapping[str, tuple[Operand, ...]] = field(default_factory=dict)
    """Other operands that the functions take, by what follows the name of the loss there: each has
    operators and kernels of its own, from the same header."""
    second_dimension: bool = False
    """Whether rows lie along dimension 1, as classes do in PyTorch; else along the last. The shapes
    of other operands are then ``of_rows`` and ``of_classes``."""
    holds: Content = LOGITS
    """What the rows are, from which checks take the values that need care."""
    counts: Callable[..., Tensor] | None = None
    """``counts(*operands, **parameters)``: what each row counts in a mean; None where it is 1."""
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
    doubling: str = ""
    """The parameter that asks for a second value of each row: the loss then has a dimension of two
    in front. The operator takes how many values a row has besides the first."""
    values: int = 1
    """How many losses a row has; several lie in a dimension in front of the rows."""
    part_values: int = 0
    """How many values an operator returns of a part of each row, where others have some classes;
    0 where there is none. See csrc/parts."""
    in_place: bool = False
    """Whether there is an operator that writes the first gradient over its operand."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """What a call of the public function says besides operands and settings, so that it takes the
    rows where the spec has them."""

    @property
    def roles(self) -> str:
        """The role of each operand in operators and kernels, one letter each.

        ``r`` rows, ``l`` a class index per row, ``t`` another number per row, ``m`` a row mask,
        ``w`` a number per class. Capitals mark rows and weights whose gradients PyTorch operators
        compose.
        """
        return "".join(map(_role, self.operands))

    @property
    def rows(self) -> int:
        """The number of row operands."""
        return self.roles.upper().count("R")

    @property
    def gradients(self) -> int:
        """The number of operands with kernel gradients, which come first."""
        return self.roles.count("r")

    @property
    def promoted(self) -> tuple[str, ...]:
        """The operands that determine the loss's dtype: the rows."""
        return super().promoted if self.composed_of else self.names[: self.rows]

    def row_dimension(self, dimensions: int) -> int:
        """Return the dimension of the classes."""
        return min(dimensions - 1, 1) if self.second_dimension else dimensions - 1

    def rows_shape(self, shape: Shape) -> Shape:
        """Return the prediction's shape without the class dimension."""
        dimension = self.row_dimension(len(shape))
        return shape[:dimension] + shape[dimension + 1 :]

    def loss_shape(self, shapes: Sequence[Shape]) -> Shape:
        """Return the shape of the rows, preceded by the number of values per row if several."""
        rows = self.rows_shape(shapes[0])
        return rows if self.values == 1 else (self.values, *rows)

    def terms_in_sum(self, shape: Shape) -> int:
        """Return the length of a row."""
        return shape[self.row_dimension(len(shape))] if shape else 1


def _role(operand: Operand) -> str:
    if operand.kind in (CLASS_NUMBERS, MASK):
        return "l" if operand.kind == CLASS_NUMBERS else "m"
    if operand.shared:
        return "W" if operand.differentiable else "w"
    if operand.shape is not same_shape:
        return "t"
    return "R" if operand.composed else "r"


def counts_of_classes(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: float = -100,
    **_: float,
) -> Tensor:
    """Return each row's weight in a mean over class indices."""
    import torch

    kept = target != int(ignore_index)
    ones = torch.ones_like(target, dtype=input.dtype)
    found = ones if weight is None else weight[target.long().clamp(0, len(weight) - 1)]
    return torch.where(kept, found, torch.zeros_like(found))
