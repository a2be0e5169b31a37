"""The arguments and results of a call of an implementation."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from losscli.cases import OperandName


@dataclass(frozen=True)
class Call:
    """The arguments of a call: it returns the loss, and the gradients of ``wrt``."""

    input: Tensor
    target: Tensor
    wrt: tuple[OperandName, ...] = ()
    grad_output: Tensor | None = None
    """Of the shape of the loss; needed where ``wrt`` names an operand."""
    contents: tuple[Tensor, Tensor] | None = None
    """Copied into the operands just before, on the same stream."""

    def fill(self) -> None:
        """Copy the contents into the operands."""
        if self.contents:
            self.input.copy_(self.contents[0])
            self.target.copy_(self.contents[1])


@dataclass(frozen=True)
class Answer:
    """What an implementation returned."""

    loss: Tensor
    gradients: dict[OperandName, Tensor | None]
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
    """The arguments for second derivatives: those of the gradients' product with two tensors."""

    input: Tensor
    target: Tensor
    grad_output: Tensor
    """Of the shape of the loss."""
    toward_input: Tensor
    toward_target: Tensor

    @property
    def toward(self) -> tuple[Tensor, Tensor]:
        """The tensors that the gradients are multiplied by."""
        return self.toward_input, self.toward_target


@dataclass(frozen=True)
class Recording:
    """A call captured in a CUDA graph; ``answer`` is what each replay writes to."""

    graph: torch.cuda.CUDAGraph
    call: Call
    answer: Answer


@dataclass(frozen=True)
class Replay:
    """A recording to be replayed once, on contents that may be new."""

    recording: Recording
    contents: tuple[Tensor, Tensor] | None = None
