"""The arguments and results of a call of an implementation."""

from __future__ import annotations

import math
from dataclasses import dataclass

import msgspec
import torch
from torch import Tensor

from losscli.cases.case import Case
from losscli.losses import MODEL

Operands = dict[str, Tensor]
"""The operands of a loss by their names, in the spec's order: the prediction is the first."""
INCOMING_GRADIENT = "incoming gradient"
"""The name, beside those of the operands, of what second derivatives are of as well."""


class Call(msgspec.Struct, frozen=True, tag=True):
    """The arguments of a call: it returns the loss, and the gradients of ``wrt``."""

    operands: Operands
    wrt: tuple[str, ...] = ()
    """Names of operands."""
    grad_output: Tensor | None = None
    """The incoming gradient, of the shape of the loss; needed where ``wrt`` names an operand."""
    contents: Operands | None = None
    """Copied into the operands just before, on the same stream."""

    @property
    def prediction(self) -> Tensor:
        """The first operand."""
        return next(iter(self.operands.values()))

    def fill(self, contents: Operands | None = None) -> None:
        """Copy contents into the operands; None is those of the call."""
        for name, values in (contents or self.contents or {}).items():
            self.operands[name].copy_(values)


@dataclass(frozen=True)
class Answer:
    """What an implementation returned."""

    loss: Tensor
    gradients: dict[str, Tensor | None]
    """The gradients of the operands in ``wrt``; None where there is none."""

    def items(self) -> dict[str, Tensor | None]:
        """Return everything by the name that a report gives it."""
        return {"loss": self.loss, **{f"{n} gradient": g for n, g in self.gradients.items()}}

    def copy(self) -> Answer:
        """Copy everything, on the current stream."""
        gradients = {n: None if g is None else g.clone() for n, g in self.gradients.items()}
        return Answer(self.loss.clone(), gradients)


@dataclass(frozen=True)
class Curvature:
    """The arguments for second derivatives: those of the gradients' product with tensors."""

    operands: Operands
    grad_output: Tensor
    """The incoming gradient, of the shape of the loss."""
    toward: Operands
    """The tensor that multiplies the gradient of each operand that has one, by its name."""


class Replay(msgspec.Struct, frozen=True, tag=True):
    """A call captured in a CUDA graph, to be replayed once, on contents that may be new."""

    number: int
    """The number that the subject gave the graph."""
    call: Call
    contents: Operands | None = None


@dataclass(frozen=True)
class Head:
    """One of several losses that make one: its weight, and the call without a gradient."""

    case: Case | None
    """None is that of the subject which is asked."""
    call: Call
    weight: float


def toggle(values: Tensor, case: Case) -> None:
    """Change some predictions of a case; once more brings them back, bit for bit.

    Their signs are turned. Where the loss does not take all numbers of both signs, they are
    reversed in the last dimension instead, and so stay in their domain. Of a Model, which may be
    the same for both signs, they are doubled or halved.
    """
    if case.spec.unit == MODEL and case.spec.operands[0].domain.is_real:
        integers = values.view(getattr(torch, f"int{8 * values.itemsize}"))
        mantissa = round(-math.log2(torch.finfo(values.dtype).eps))
        integers.bitwise_xor_(1 << mantissa)  # the last bit of the exponent
    elif case.spec.operands[0].domain.is_real:
        values.neg_()
    elif values.dim():
        values.copy_(values.flip(-1))
