"""The case of a ``Model``: a module whose formula only its own code knows.

Its shapes are those of ``get_inputs``. Parameters and buffers are operands too: a candidate gets
the reference's with each call.
"""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Literal, Self

import msgspec
from msgspec.structs import replace

from losscli.cases.axes import FORWARD_BACKWARD, PassName
from losscli.cases.case import ITEM_BYTES, Case
from losscli.losses import MODEL, Domain, Operand, Shape, Spec, Unit
from losscli.losses.domain import REAL
from losscli.units import format_size

NAME = "Model"
"""A Model case's loss name."""
Content = Literal[
    "signs", "bits", "probabilities", "log_probabilities", "unit", "not_negative", "any"
]
"""Kinds of floating values: all -1 or 1; all 0 or 1; rows that sum to one, or whose exponentials
do; all in [0, 1]; none negative; anything."""
RANGES: dict[Content, tuple[float, float]] = {
    "signs": (-1.0, 1.0),
    "bits": (0.0, 1.0),
    "probabilities": (0.0, 1.0),
    "log_probabilities": (-math.inf, 0.0),
    "unit": (0.0, 1.0),
    "not_negative": (0.0, math.inf),
}
Draw = Literal["usual", "large", "negative"]
"""``large`` has larger values and rows with sharp peaks, ``negative`` no positive ones."""


class Argument(msgspec.Struct, frozen=True):
    """An argument of a Model, or one of its parameters and buffers."""

    name: str = ""
    shape: Shape | None = None
    """None for a non-tensor."""
    dtype: str = ""
    content: Content = "any"
    low: int = 0
    """The smallest value of integers."""
    high: int = 0
    """The largest value of integers."""
    plain: bool | int | float | str | None = None
    """A non-tensor's value."""
    differentiable: bool = False
    """Whether the Model differentiates it."""

    @property
    def is_floating(self) -> bool:
        """Whether it is a floating-point tensor."""
        return self.dtype in ITEM_BYTES


@dataclass(frozen=True, kw_only=True)
class _ModelSpec(Spec):
    unit: ClassVar[Unit] = MODEL
    squares: bool = True


class ModelCase(Case, frozen=True):
    """A Model's case; the other fields follow from its arguments."""

    model: str = ""
    """The file with the Model, as an implementation's name."""
    arguments: tuple[Argument, ...] = ()
    """Its forward's arguments, in order."""
    state: tuple[Argument, ...] = ()
    """Its parameters and buffers."""
    cast: str = ""
    """The dtype to cast modules to; empty to leave them."""
    made_with: int = 0
    """The seed that modules are made with."""
    output: Shape = ()
    output_dtype: str = "float32"
    draw: Draw = "usual"
    mixes_dtypes: ClassVar[bool] = False  # only losses with a known formula have targets
    impossible: ClassVar[None] = None  # its shapes are those of get_inputs

    @property
    def tensors(self) -> tuple[Argument, ...]:
        """Tensor arguments and the state, with a differentiable one first if possible."""
        given = [a for a in self.arguments if a.shape is not None]
        first = max(given, key=lambda a: (a.differentiable, a.is_floating))
        return (first, *(a for a in given if a is not first), *self.state)

    @property
    def spec(self) -> Spec:
        return _spec(self.tensors)

    @property
    def shapes(self) -> dict[str, Shape]:
        return {a.name: a.shape or () for a in self.tensors}

    @property
    def dtypes(self) -> dict[str, str]:
        return {a.name: a.dtype for a in self.tensors}

    @property
    def drawn(self) -> tuple[str, ...]:
        return tuple(argument.name for argument in self.arguments)  # the state has its own values

    @property
    def unreduced_shape(self) -> Shape:
        return self.output

    @property
    def loss_dtype(self) -> str:
        return self.output_dtype

    @property
    def largest(self) -> int:
        """Elements of the largest argument."""
        return max(math.prod(a.shape) for a in self.arguments if a.shape is not None)

    @property
    def terms(self) -> int:
        """How many elements of an argument make one of the result."""
        return self.largest // max(math.prod(self.output), 1)

    def name_with(self, shown: Collection[str] = ()) -> str:
        named = (
            str(a.plain) if a.shape is None else f"{format_size(a.shape)} {a.dtype}"
            for a in self.arguments
        )
        return ", ".join(named) + ("" if self.draw == "usual" else f", {self.draw} values")

    def reshaped(self, *shapes: Any, **changes: Any) -> Self:
        return self

    def floor_bytes(self, pass_: PassName) -> int:
        gradient = self.elements * self.item_bytes if pass_ == FORWARD_BACKWARD else 0
        return self.stored_bytes + self.loss_bytes + gradient

    def of_dtype(self, dtype: str) -> Self:
        """Return the case with modules and floating arguments cast."""
        changes = {"dtype": dtype, "cast": dtype, "output_dtype": dtype}
        return self._of(lambda a: replace(a, dtype=dtype) if a.is_floating else a, **changes)

    def _of(self, change: Callable[[Argument], Argument], **changes: Any) -> Self:
        arguments, state = (tuple(map(change, given)) for given in (self.arguments, self.state))
        return replace(self, arguments=arguments, state=state, **changes)

    def settled(self) -> Self:
        """Return the case with its first operand's shape and dtype."""
        first = self.tensors[0]
        return replace(self, shape=first.shape, dtype=first.dtype)

    def with_result(self, shape: Shape, dtype: str, given: Collection[str]) -> Self:
        """Return the case with its result's shape and dtype; ``given`` operands have gradients."""
        changes = {"output": shape, "output_dtype": dtype}
        return self._of(lambda a: replace(a, differentiable=a.name in given), **changes).settled()

    def of_rows(self, rows: int) -> Self | None:
        """Return the case with fewer rows; None if arguments differ in rows or have few."""
        given = [a.shape for a in self.arguments if a.shape is not None]
        extents = {shape[0] if shape else 0 for shape in given}
        if len(extents) != 1 or extents.pop() <= rows:
            return None
        arguments = tuple(
            a if a.shape is None else replace(a, shape=(rows, *a.shape[1:])) for a in self.arguments
        )
        return replace(self, arguments=arguments).settled()


@cache
def _spec(tensors: tuple[Argument, ...]) -> Spec:
    return _ModelSpec(
        name=NAME,
        formula="",
        operands=tuple(
            Operand(a.name, differentiable=a.differentiable, domain=_domain(a)) for a in tensors
        ),
        parameters=(),
        reductions=("none",),
        reference=_unknown,
        loss=_unknown,
    )


def _domain(argument: Argument) -> Domain:
    # One that is not real is redrawn as it was.
    if argument.content == "any" and argument.is_floating:
        return REAL
    low, high = RANGES.get(argument.content, (argument.low, argument.high))
    return Domain("as get_inputs gives it", low=low, high=high, discrete=True)


def _unknown(*operands: Any, **settings: Any) -> Any:
    raise NotImplementedError("the formula of a Model is known to its own code alone")
