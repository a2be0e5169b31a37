"""The spec of a loss over rows: one loss for each row of logits, not for each element."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .module import NumberedModule
from .spec import LossFunction, Operand, Parameter

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class RowLossSpec:
    """One loss over rows: its name everywhere, its formula, and the PyTorch code that defines it.

    Its operators are defined from this, and its kernels are compiled from csrc/rowwise.
    """

    name: str
    """Name of the operator and of the libraries."""
    formula: str
    """One row's loss, as a person writes it."""
    operands: tuple[Operand, ...]
    """The tensors that it takes, the logits first."""
    parameters: tuple[Parameter, ...]
    """The settings that are floating-point numbers."""
    reference: LossFunction
    """The plain PyTorch formula, ``f(*operands, reduction, ignore_index, *parameters)``.

    It is differentiable in all operands and any number of times, so it is also what the operator
    computes where its kernels have no derivative."""
    gradient: Callable[..., Tensor]
    """The gradient of the logits as a plain PyTorch formula,
    ``f(grad_output, *operands, reduction, ignore_index, *parameters)``; differentiable likewise."""
    loss: Callable[..., Tensor]
    """The public function: losscli's own kernel."""
    loss_with_grad: Callable[..., tuple[Tensor, Tensor]]
    """The public function that returns the gradient of the logits as well."""
    module: type[NumberedModule]
    """The class that ``losscli.nn`` combines with ``torch.nn.Module``."""

    @property
    def settings(self) -> tuple[str, ...]:
        """The names of what its operators take after the reduction, in their order."""
        return ("ignore_index", *[parameter.name for parameter in self.parameters])
