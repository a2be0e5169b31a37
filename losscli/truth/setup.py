"""A case with its inputs, and the calls, grad_outputs and variants of checks."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Self

import msgspec
import torch
from torch import Tensor

from losscli.cases.axes import grad_output_values
from losscli.cases.case import Case
from losscli.implementations import Implementation
from losscli.implementations.local import Operands
from losscli.implementations.requests import Call
from losscli.losses import ELEMENT, HIDDEN_STATE, MODEL, ROW, Shape, Unit
from losscli.truth.fingerprint import has_mark, mark_of
from losscli.truth.inputs import make_grad_output, make_inputs
from losscli.truth.linear_oracle import LinearOracle
from losscli.truth.model import ModelOracle
from losscli.truth.oracle import Oracle
from losscli.truth.row_oracle import RowOracle

ORACLES: Mapping[Unit, type[Oracle]] = {
    ELEMENT: Oracle,
    ROW: RowOracle,
    HIDDEN_STATE: LinearOracle,
    MODEL: ModelOracle,
}
Beside = Mapping[str, tuple[str, ...]]
"""The run's losses per implementation, which are built anyway."""
_LARGEST_SCALE = 2.0**15
"""The largest power of two in float16."""


@dataclass(frozen=True, eq=False)
class Incoming:
    """A grad_output and the operands to differentiate; hashed by identity."""

    name: str
    wrt: tuple[str, ...]
    grad_output: Tensor
    """In the shape of the loss."""

    @cached_property
    def largest(self) -> float:
        """The largest magnitude of grad_output; 0 of none."""
        return float(self.grad_output.abs().max()) if self.grad_output.numel() else 0.0


@dataclass(frozen=True)
class ThirdParty:
    """Facts about a judged third-party kernel."""

    lacking: tuple[str, ...] = ()
    """Operands without a gradient, as in PyTorch's own function."""
    reference: Implementation | None = None
    """What computes the truth of a Model."""
    labels: bool = False
    """Whether targets between 0 and 1 are rounded to labels."""


@dataclass(frozen=True)
class Setup:
    """A case with its inputs and its oracle."""

    case: Case
    operands: Operands
    loosened: float | None = None
    """ULP that the config grants this case."""
    third_party: ThirdParty | None = None
    """Set for third-party kernels, which may be as wrong as a textbook formula."""
    beside: Beside = field(default_factory=dict)
    """Losses that a check may call in between."""
    _variants: dict[str, Self] = field(default_factory=dict)
    _used: dict[str, Self] = field(default_factory=dict)
    """Variants used since the last ``spoiled``."""
    _marks: dict[str, Tensor | int] = field(default_factory=dict)
    _filled: dict[tuple[float, tuple[str, ...]], Incoming] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        case: Case,
        loosened: float | None = None,
        beside: Beside = MappingProxyType({}),
        *,
        third_party: ThirdParty | None = None,
    ) -> Self:
        """Make the inputs of a case."""
        known = third_party or ThirdParty()
        operands = make_inputs(case, known.reference, labels=known.labels)
        return cls(case, operands, loosened, third_party=third_party, beside=beside)

    @property
    def of_others(self) -> bool:
        """Whether a third-party kernel is judged."""
        return self.third_party is not None

    @property
    def prediction(self) -> Tensor:
        """The first operand."""
        return next(iter(self.operands.values()))

    @property
    def wrt(self) -> tuple[str, ...]:
        """The names of the operands to differentiate."""
        lacking = self.third_party.lacking if self.third_party else ()
        return tuple(name for name in self.case.spec.differentiable if name not in lacking)

    @property
    def refused(self) -> bool:
        """Whether the public function rejects these operand shapes."""
        shapes = [tuple(operand.shape) for operand in self.operands.values()]
        return bool(self.case.spec.refused(shapes))

    def like(self, changed: Operands, case: Case | None = None) -> Self:
        """Return a setup with some operands, and perhaps the case, replaced."""
        operands = {**self.operands, **changed}
        return type(self)(case or self.case, operands, self.loosened, self.third_party)

    def _of(self, case: Case) -> Self:
        return self.of(case, self.loosened, third_party=self.third_party)

    @property
    def chooses_order(self) -> bool:
        """Whether sums may have another order on another stream or in a capture."""
        return self.case.spec.chooses_order and self.case.device != "cpu"

    def reshaped(self, shape: Shape, target_shape: Shape | None = None) -> Self:
        """Return the setup with other shapes; see :meth:`Case.reshaped`."""
        return self._of(self.case.reshaped(shape, target_shape))

    @cached_property
    def oracle(self) -> Oracle:
        """The oracle, which reads the operands each time."""
        reference = self.third_party.reference if self.third_party else None
        return ORACLES[self.case.spec.unit](self.case, self.operands, reference, self.of_others)

    def sibling(self) -> Self:
        """Return the same case with other contents."""
        return self._of(msgspec.structs.replace(self.case, seed=self.case.seed + 1))

    def variant(self, name: str, make: Callable[[], Self]) -> Self:
        """Return a derived setup, made once per name."""
        if name not in self._variants:
            self._variants[name] = make()
            if self._marks:
                self._variants[name].mark()
        self._used[name] = self._variants[name]
        return self._variants[name]

    def mark(self) -> None:
        """Mark the operands' current contents."""
        self._marks.update({name: mark_of(operand) for name, operand in self.operands.items()})

    def spoiled(self, *, used: bool = False) -> str:
        """Return an operand that changed since ``mark``, here or in a (``used``) variant."""
        variants = list((self._used if used else self._variants).values())
        self._used.clear()
        for name, mark in self._marks.items():
            if not has_mark(self.operands[name], mark):
                return name
        return next(filter(None, (each.spoiled(used=used) for each in variants)), "")

    def call(
        self, incoming: Incoming, operands: Operands | None = None, contents: Operands | None = None
    ) -> Call:
        """Return the call for a grad_output; see :class:`Call`."""
        return Call(operands or self.operands, incoming.wrt, incoming.grad_output, contents)

    def copies(self) -> Operands:
        """Return copies of the operands."""
        return {name: each.clone() for name, each in self.operands.items()}

    @cached_property
    def ones(self) -> Tensor:
        """A grad_output of ones."""
        one = torch.ones((), dtype=self.oracle.dtype, device=self.oracle.device)
        return one.expand(self.oracle.loss_shape())

    def filled(self, value: float, wrt: tuple[str, ...] = ()) -> Incoming:
        """Return a constant grad_output, made once, for ``wrt`` or the prediction."""
        wrt = wrt or self.wrt[:1]
        key = value, wrt
        if key not in self._filled:
            grad_output = self.ones.new_full((), value).expand(self.oracle.loss_shape())
            if not self.oracle.takes_expanded:
                grad_output = grad_output.contiguous()
            self._filled[key] = Incoming(f"{value:g}", wrt, grad_output)
        return self._filled[key]

    @cached_property
    def usual(self) -> Incoming:
        """The usual grad_output: the case's first; instead of 1 normal values if unreduced."""
        value = grad_output_values(self.case.grad_output)[0]
        if self.case.reduction == "none" and value == 1:
            return Incoming("of normal values", self.wrt, make_grad_output(self.case))
        return self.filled(value, self.wrt)

    @cached_property
    def others(self) -> tuple[Incoming, ...]:
        """Other grad_outputs; the last is for all operands.

        32768, a usual loss scale of mixed precision, is for the prediction only, as in training. A
        small one makes gradients of some thousand elements less than 1e-6: none may count as zero.
        In float16, which underflows and overflows with these, it is -3, and about N for a mean.
        """
        if self.case.reduction == "none":
            return (self.usual,)
        factors = [(_LARGEST_SCALE, self.wrt[:1]), (-3 / 1024, self.wrt)]
        if self.oracle.dtype == torch.float16:
            factors = [(-3.0, self.wrt)]
            if self.case.reduction == "mean":
                power = int(math.log2(max(self.oracle.unreduced_shape.numel(), 1)))
                factors.append((min(2.0**power, _LARGEST_SCALE), self.wrt))
        return tuple(self.filled(factor, wrt) for factor, wrt in factors)
