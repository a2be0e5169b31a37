"""A case, and names that tell cases apart; without torch."""

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Self

from msgspec.structs import force_setattr, replace

from losscli import losses
from losscli.cases import axes, layouts
from losscli.cases.axes import Distribution, DType, GradOutput, Layout, Parameters, PassName
from losscli.files.record import Record
from losscli.losses import CLASS_INDICES, ELEMENT, HIDDEN_STATE, MASK, ROW, Reduction, Shape, Spec
from losscli.ranks.placements import WHOLE, Placement, share
from losscli.reasons import Code, Reason
from losscli.units import format_size

ITEM_BYTES = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2}
_BYTES = ITEM_BYTES | {"bool": 1, "uint8": 1, "int8": 1, "int16": 2, "int32": 4}
"""Bytes of an element of any operand, if not 8; integers are no axis."""
SECTOR_BYTES = 32
"""The smallest unit of GPU memory traffic."""


class Case(Record, frozen=True):
    """One loss on one set of inputs and one device, used as a key."""

    loss: str
    shape: Shape
    """The prediction's; for fused linear losses tokens, width and classes."""
    target_shape: Shape
    dtype: DType
    reduction: Reduction
    device: str
    """``cpu``, ``cuda`` or ``cuda:N``; never ``auto``."""
    params: Mapping[str, float]
    distribution: Distribution
    seed: int
    scale: float = 1.0
    layout: Layout = axes.CONTIGUOUS
    grad_output: GradOutput = 1.0
    """The grad_output of ``forward_backward``; for an unreduced loss a tensor filled with it."""
    ranks: int = 1
    """The number of ranks that split the operands, if there is a placement."""
    placement: Placement = WHOLE
    """How operands are split; empty for ordinary cases."""

    def __post_init__(self) -> None:
        if not isinstance(self.params, Parameters):
            force_setattr(self, "params", Parameters(self.params))

    @property
    def spec(self) -> Spec:
        """The loss, with its operands for these parameters."""
        return losses.find_loss(self.loss).given(self.params)

    @property
    def settings(self) -> dict[str, float]:
        """The parameters as users pass them."""
        return self.spec.given_as(self.params)

    @property
    def shapes(self) -> dict[str, Shape]:
        """Each operand's shape by name; only the target's is free."""
        target = self.spec.operands[1].name
        shapes = {operand.name: operand.shape(self.shape) for operand in self.spec.operands}
        return shapes | {target: self.target_shape}

    @property
    def target_broadcasts(self) -> bool:
        """Whether an elementwise loss has a smaller target than input."""
        return self.spec.unit == ELEMENT and self.target_shape != self.shape

    @property
    def has_whole_target(self) -> bool:
        """Whether the target has the input's shape where the loss's own would broadcast."""
        return self.target_shape == self.shape != self.spec.default_target_shape(self.shape)

    @property
    def drawn(self) -> tuple[str, ...]:
        """The names of the operands whose values are drawn."""
        return self.spec.names

    @property
    def elements(self) -> int:
        """Elements of the prediction."""
        return math.prod(self.spec.operands[0].shape(self.shape))

    @property
    def temporary_elements(self) -> int:
        """Elements of the reference's largest tensor."""
        return self.spec.temporary_elements(self.shape)

    @property
    def unreduced_shape(self) -> Shape:
        """The unreduced loss's shape; ValueError if the operands do not broadcast."""
        return self.spec.loss_shape(list(self.shapes.values()))

    @property
    def classes(self) -> int:
        """Classes of a row."""
        return self.spec.terms_in_sum(self.shape)

    @property
    def size(self) -> Shape:
        """The size as a config names it."""
        return layouts.size_of(self.shape, self.layout)

    @property
    def impossible(self) -> Reason | None:
        """Why the size cannot have the layout or placement, or None."""
        dimensions = 3 if self.spec.unit == HIDDEN_STATE else 2
        most = getattr(self.spec, "most_dimensions", None) or len(self.shape)
        text = layouts.impossible(self.size, self.layout)
        if self.placement and (self.layout != axes.CONTIGUOUS or len(self.shape) != dimensions):
            text = "operands that are split are contiguous, of rows and classes"
        elif self.spec.unit == HIDDEN_STATE and self.layout != axes.CONTIGUOUS:
            text = f"{self.layout}: cases of {self.loss} are contiguous"
        elif self.spec.unit == ROW and self.layout == axes.BROADCAST_MIDDLE:
            text = f"{self.layout}: rows of {self.loss} do not broadcast"
        elif self.spec.unit == ROW and not (self.shape and self.classes):
            text = f"{self.loss} needs rows of at least one class"
        elif self.spec.unit == ROW and len(self.shape) > most:
            text = f"{self.loss} takes at most {most} dimensions"
        elif not text and (refused := self.spec.refused(list(self.shapes.values()))):
            text = f"{self.layout}: {refused}"
        return Reason(Code.LAYOUT, text) if text else None

    @property
    def item_bytes(self) -> int:
        """Bytes of an element of the prediction."""
        return ITEM_BYTES[self.dtype]

    @property
    def dtypes(self) -> dict[str, str]:
        """Each operand's dtype by name; only the target's may differ."""
        usual = {MASK: "bool", CLASS_INDICES: "int64"}
        dtypes = {each.name: usual.get(each.kind, self.dtype) for each in self.spec.operands}
        if self.layout == axes.MIXED_DTYPE:
            target, other = self.spec.names[1], "float32" if self.item_bytes == 2 else "bfloat16"
            dtypes[target] = {"bool": "bool", "int64": "int32"}.get(dtypes[target], other)
        return dtypes

    @property
    def loss_dtype(self) -> str:
        """The loss's dtype."""
        dtypes = self.dtypes
        given = {dtypes[name] for name in self.spec.promoted}
        if self.spec.wide:
            given.add("float32")
        widest = max(given, key=ITEM_BYTES.__getitem__)
        return "float32" if len(given) > 1 and ITEM_BYTES[widest] == 2 else widest

    @property
    def loss_item_bytes(self) -> int:
        """Bytes of an element of the loss."""
        return ITEM_BYTES[self.loss_dtype]

    @property
    def loss_bytes(self) -> int:
        """Bytes of an unreduced loss; 0 for a scalar."""
        unreduced = self.reduction == "none"
        return math.prod(self.unreduced_shape) * self.loss_item_bytes if unreduced else 0

    @property
    def mixes_dtypes(self) -> bool:
        """Whether the target has another floating dtype than the prediction."""
        target = self.dtypes[self.spec.names[1]]
        return target in ITEM_BYTES and target != self.dtype

    @property
    def operand_bytes(self) -> dict[str, int]:
        """Bytes of each operand, by name."""
        dtypes = self.dtypes
        return {n: math.prod(s) * _BYTES.get(dtypes[n], 8) for n, s in self.shapes.items()}

    @property
    def stored_bytes(self) -> int:
        """Bytes of the operands' storage."""
        dtypes = self.dtypes
        return sum(
            layouts.stored_elements(shape, self.layout) * _BYTES.get(dtypes[name], 8)
            for name, shape in self.shapes.items()
        )

    @property
    def kind(self) -> tuple[object, ...]:
        """The key of cases that the same code serves."""
        return self.loss, self.params, self.dtype, self.reduction

    @property
    def shard(self) -> Self:
        """The unsplit case of the first rank, which has the most classes."""
        if not self.placement:
            return self
        _, classes = share(self.classes, self.ranks)
        return self.whole.reshaped((*self.shape[:-1], classes))

    @property
    def whole(self) -> Self:
        """The case without its placement."""
        return replace(self, ranks=1, placement=WHOLE) if self.placement else self

    def to_json(self) -> dict[str, Any]:
        """Leave out ranks and placement of unsplit cases."""
        record = super().to_json()
        if not self.placement:
            del record["ranks"], record["placement"]
        return record

    def anywhere(self) -> Self:
        """Return the case without a GPU's number."""
        return replace(self, device=self.device.partition(":")[0])

    @property
    def name(self) -> str:
        """The name in errors, tolerances and tables: ``mse 1024x1024 float32 mean``."""
        return self.name_with()

    def name_with(self, shown: Collection[str] = ()) -> str:
        """Return the name, with these parameters even at their defaults."""
        changed = [
            f"{p.name}={p.written(self.params[p.name])}"
            for p in self.spec.parameters
            if self.params[p.name] != p.default or p.name in shown
        ]
        words = [self.loss, *changed, format_size(self.size), self.dtype, self.reduction]
        words += [self.distribution] if self.distribution != "uniform" else []
        words += [self.layout] if self.layout != axes.CONTIGUOUS else []
        if self.grad_output != 1:
            words.append(f"grad_output={axes.format_grad_output(self.grad_output)}")
        words += [f"ranks={self.ranks}"] if self.placement else []
        return " ".join(words)

    def reshaped(
        self,
        shape: Shape,
        target_shape: Shape | None = None,
        layout: Layout = axes.CONTIGUOUS,
        **changes: Any,
    ) -> Self:
        """Return the case with other shapes; that of hidden states may omit the width.

        Without a target's shape, a whole target stays one, and any other gets the loss's own.
        """
        if self.spec.unit == HIDDEN_STATE and len(shape) == 2:
            shape = shape[0], self.shape[1], shape[1]
        if target_shape is None:
            target_shape = shape if self.has_whole_target else self.spec.default_target_shape(shape)
        changes["shape"], changes["target_shape"] = layouts.shapes_of(shape, layout, target_shape)
        return replace(self, layout=layout, **changes)

    def operations(self, pass_: PassName) -> int:
        """Return the operations that limit a pass on the first rank; 0 if memory does."""
        return self.spec.operations(self.shard.shape, backward=pass_ == axes.FORWARD_BACKWARD)

    def floor_bytes(self, pass_: PassName) -> int:
        """Return a pass's minimum memory traffic, on the rank with the most classes.

        Forward reads each operand once, or a sector for each element that the loss picks, and
        writes an unreduced loss. Forward and backward also writes a training step's gradients. An
        unreduced loss's grad_output is known only later, so operands are read again.
        """
        if self.placement:
            return self.shard.floor_bytes(pass_)
        bytes_of = self.operand_bytes
        input = self.elements * self.item_bytes
        again = operands = sum(bytes_of.values())
        if self.spec.picks:
            again = operands - input
            rows = math.prod(self.spec.loss_shape([self.shape]))
            operands = again + min(rows * SECTOR_BYTES, input)
        loss = self.loss_bytes
        moved = operands + loss
        if pass_ == axes.FORWARD_BACKWARD:
            moved += sum(bytes_of[name] for name in self.spec.trained)
            if self.reduction == "none":
                moved += again + loss
        return moved


def distinct_names(cases: Iterable[Case]) -> dict[Case, str]:
    """Return each case's name, with parameters that vary and fields that tell equal names apart."""
    cases = list(cases)
    swept: dict[tuple[str, str], set[float]] = {}
    for case in cases:
        for parameter, value in case.params.items():
            swept.setdefault((case.loss, parameter), set()).add(value)
    by_name: dict[str, dict[Case, None]] = {}
    for case in cases:
        shown = [name for name in case.params if len(swept[case.loss, name]) > 1]
        by_name.setdefault(case.name_with(shown), {})[case] = None
    names: dict[Case, str] = {}
    for name, alike in by_name.items():
        parting = [f for f in Case.__struct_fields__ if len({getattr(c, f) for c in alike}) > 1]
        for case in alike:
            fields = [f"{field}={_written(getattr(case, field))}" for field in parting]
            names[case] = " ".join([name, *fields])
    return names


def _written(value: object) -> str:
    if isinstance(value, Parameters):
        return ",".join(f"{name}={number!r}" for name, number in value.items())
    return format_size(value) if isinstance(value, tuple) else str(value)
