"""The spec of a row-wise loss."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from losscli.machine.pytorch import Tensor, torch

from ..domain import CLASSES, MASKS, POSITIVE, Domain
from ..fields import CLASS_INDICES, MASK, Operand, same_shape
from ..shapes import Shape
from ..spec import ROW, Spec, Unit

Content = Literal["logits", "vectors", "scores"]
LOGITS: Content = "logits"
VECTORS: Content = "vectors"
SCORES: Content = "scores"
"""What rows hold: logits for a softmax, vectors with a length, or numbers to compare or pick."""


def of_rows(shape: Shape) -> Shape:
    """Return the shape of one value per row; classes are dimension 1."""
    return shape[:1] + shape[2:] if len(shape) > 1 else ()


def of_classes(shape: Shape) -> Shape:
    """Return the shape of one value per class; classes are dimension 1."""
    return shape[1:2] or shape[:1]


def of_last_rows(shape: Shape) -> Shape:
    """Return the shape of one value per row along the last dimension."""
    return shape[:-1]


def class_indices(
    name: str,
    shape: Callable[[Shape], Shape],
    description: str = "class indices",
    domain: Domain = CLASSES,
) -> Operand:
    """Return an operand of class indices."""
    return Operand(
        name, description, differentiable=False, shape=shape, domain=domain, kind=CLASS_INDICES
    )


TARGET = class_indices("target", of_rows)


def number_of_one_row(target: Tensor) -> Tensor:
    """Return a single row's class index, which PyTorch also accepts as a batch of one."""
    return target.squeeze(0) if target.shape == (1,) else target


def class_weight(shape: Callable[[Shape], Shape], **fields: Any) -> Operand:
    """Return an optional operand with a factor per class."""
    return Operand(
        *("weight", "of each class"),
        shape=shape,
        domain=POSITIVE,
        shared=True,
        form="weighted",
        **fields,
    )


ROW_MASK = Operand(
    *("mask", "whether a row counts"),
    differentiable=False,
    shape=of_last_rows,
    domain=MASKS,
    kind=MASK,
    form="masked",
)


@dataclass(frozen=True, kw_only=True)
class RowSpec(Spec):
    """A loss of each row of its operands: rows first, those with kernel gradients before others."""

    unit: ClassVar[Unit] = ROW
    header: str = ""
    """The header's stem, if not the loss's name."""
    forms: Mapping[str, tuple[Operand, ...]] = field(default_factory=dict)
    """Alternative operands by name suffix, each with operators and kernels from the same header."""
    second_dimension: bool = False
    """Whether classes are dimension 1, not the last; then see ``of_rows`` and ``of_classes``."""
    widens: bool = True
    holds: Content = LOGITS
    """The rows' contents, which select special values for checks."""
    counts: Callable[..., Tensor] | None = None
    """``counts(*operands, **parameters)``: what each row counts in a mean; None where it is 1."""
    from_kinks: Callable[..., tuple[Tensor, ...]] | None = None
    """``from_kinks(*operands, **parameters)``: how far elements of the prediction are above each
    non-differentiable point, one tensor per point."""
    undecided: Callable[..., Mapping[str, Tensor]] | None = None
    """``undecided(*operands, dtype, ulp, **parameters)``: how far each derivative may be off, by
    operand, because rounding decides a sign. ``dtype`` is the compute dtype; ``ulp`` is what a
    row's sum and a few roundings may lose."""
    most_dimensions: int | None = None
    """The maximum number of dimensions of the prediction; None for any."""
    doubling: str = ""
    """The parameter for a second value per row: the loss then has a leading dimension of two. The
    operator takes the number of further values."""
    values: int = 1
    """The number of losses per row; several are a leading dimension."""
    part_values: int = 0
    """Values that an operator returns for a part of each row; 0 if none. See csrc/parts."""
    in_place: bool = False
    """Whether an operator can overwrite the first operand with its gradient."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of the public function, so that rows lie where the spec has them."""

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
        return super().promoted if self.composed_of else self.names[: self.rows]

    def row_dimension(self, dimensions: int) -> int:
        """Return the class dimension."""
        return min(dimensions - 1, 1) if self.second_dimension else dimensions - 1

    def rows_shape(self, shape: Shape) -> Shape:
        """Return the prediction's shape without classes."""
        dimension = self.row_dimension(len(shape))
        return shape[:dimension] + shape[dimension + 1 :]

    def loss_shape(self, shapes: Sequence[Shape]) -> Shape:
        rows = self.rows_shape(shapes[0])
        return rows if self.values == 1 else (self.values, *rows)

    def terms_in_sum(self, shape: Shape) -> int:
        return shape[self.row_dimension(len(shape))] if shape else 1


def _role(operand: Operand) -> str:
    if operand.kind in (CLASS_INDICES, MASK):
        return "l" if operand.kind == CLASS_INDICES else "m"
    if operand.shared:
        return "W" if operand.differentiable else "w"
    if operand.shape is not same_shape:
        return "t"
    return "R" if operand.composed else "r"


def counts_of_classes(
    input: Tensor, target: Tensor, weight: Tensor | None = None, *, ignore_index: float, **_: float
) -> Tensor:
    """Return each row's weight in a mean over class indices."""
    kept = target.long() != int(ignore_index)
    ones = torch.ones_like(target, dtype=input.dtype)
    found = ones if weight is None else weight[target.long().clamp(0, len(weight) - 1)]
    return torch.where(kept, found, torch.zeros_like(found))


def counts_of_mask(input: Tensor, *others: Tensor | None, **_: float) -> Tensor:
    """Return each row's weight in a mean, by a mask, the last operand."""
    mask = others[-1]
    found: Tensor = input.new_ones(input.shape[:-1]) if mask is None else mask.to(input.dtype)
    return found
