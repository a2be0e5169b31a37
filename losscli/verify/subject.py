"""All that a check may ask of an implementation, so that it may later live in another process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from losscli.cases import Case
from losscli.environment import is_out_of_memory
from losscli.errors import LosscliError
from losscli.implementations import Implementation
from losscli.oracle import Operand

if TYPE_CHECKING:
    from losscli.implementations import BoundLoss


class SubjectError(Exception):
    """An implementation raised, or returned what cannot be differentiated."""


@dataclass(frozen=True)
class Subject:
    """An implementation with the reduction and parameters of a case fixed.

    Both methods raise SubjectError, with the first line of what the implementation raised.
    """

    name: str
    function: BoundLoss

    @classmethod
    def bind(cls, implementation: Implementation, case: Case) -> Subject:
        """Fix reduction and parameters."""
        with _blaming():
            return cls(implementation.name, implementation.bind(case))

    def loss(self, input: Tensor, target: Tensor, wrt: Sequence[Operand] = ()) -> Tensor:
        """Return the loss, computed as when the gradients of ``wrt`` will be asked for."""
        return self._run(input, target, wrt)[0].detach()

    def gradients(
        self, input: Tensor, target: Tensor, wrt: Sequence[Operand], grad_output: Tensor
    ) -> tuple[Tensor, dict[Operand, Tensor | None]]:
        """Return the loss and the gradients asked for; None where there is none."""
        loss, operands = self._run(input, target, wrt)
        with _blaming():
            gradients = torch.autograd.grad(
                loss, [operands[name] for name in wrt], grad_output, allow_unused=True
            )
            _finish(input)
        return loss.detach(), dict(zip(wrt, gradients, strict=True))

    def _run(
        self, input: Tensor, target: Tensor, wrt: Sequence[Operand]
    ) -> tuple[Tensor, dict[Operand, Tensor]]:
        """Run the function on leaves of which those in ``wrt`` ask for a gradient."""
        operands: dict[Operand, Tensor] = {"input": input.detach(), "target": target.detach()}
        for name in wrt:
            operands[name].requires_grad_()
        with _blaming(), torch.set_grad_enabled(bool(wrt)):
            loss = self.function(operands["input"], operands["target"])
            _finish(input)
        if not isinstance(loss, Tensor):
            raise SubjectError(f"returned {str(loss)[:60]}, not a tensor")
        return loss, operands


@contextmanager
def _blaming() -> Iterator[None]:
    """Turn what an implementation raises into SubjectError.

    A failed build and a lack of memory are not its fault and stay themselves.
    """
    try:
        yield
    except LosscliError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise
        text = str(error).strip().partition("\n")[0]
        raise SubjectError(f"raised {type(error).__name__}: {text}".rstrip(": ")) from error


def _finish(input: Tensor) -> None:
    """Wait for a GPU, so that what goes wrong in a kernel is blamed on who launched it."""
    if input.is_cuda:
        torch.cuda.synchronize(input.device)


def misfit(result: Tensor | None, shape: torch.Size, like: Tensor, dtype: torch.dtype) -> str:
    """Say how a result's shape, dtype or device differs from what is due; empty if it fits."""
    if result is None:
        return "expected a tensor, got None"
    due = (tuple(shape), dtype, like.device)
    given = (tuple(result.shape), result.dtype, result.device)
    if due == given:
        return ""
    return "expected shape {}, {} on {}, got {}, {} on {}".format(*due, *given)
