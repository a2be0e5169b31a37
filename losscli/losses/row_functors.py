"""The spec of a loss over rows of logits whose kernels are made from a functor.

csrc/rowfunctors/losses has a header for each; the loops over rows are written once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import operators
from .module import check_parameters, check_reduction
from .spec import Parameter

if TYPE_CHECKING:
    from torch import Tensor

TEMPERATURE = Parameter("temperature", 1.0, 0.0, "divides the logits", 1.3, open=True)


def counted(rows: int, mask: Tensor | None) -> Tensor | int:
    """Return the number of rows that a mask keeps."""
    return rows if mask is None else mask.sum()


def total_of(rows: Tensor, mask: Tensor | None, reduction: str) -> Tensor:
    """Reduce the distances of rows, 0 where the mask leaves one out."""
    if reduction == "none":
        return rows
    total = rows.sum()
    return total / counted(rows.numel(), mask) if reduction == "mean" else total


@dataclass(frozen=True, kw_only=True)
class RowFunctorSpec:
    """A distance between the distributions of two sets of logits, for each row."""

    name: str
    formula: str
    rows: Callable[..., Tensor]
    """``rows(log_p, log_q, *parameters)``: the distance of each row as a plain PyTorch formula, of
    the logarithms of the input's and of the target's probabilities."""
    parameters: tuple[Parameter, ...] = (TEMPERATURE,)
    """The temperature, then the functor's own."""
    loss: Callable[..., Tensor]
    """The function for users."""
    module: type[DistanceModule]

    def reference(
        self,
        input: Tensor,
        target: Tensor,
        mask: Tensor | None,
        reduction: str,
        temperature: float,
        *parameters: float,
    ) -> Tensor:
        """Return the loss composed of PyTorch's operators, in float32 at least."""
        import torch

        dtype = torch.promote_types(input.dtype, target.dtype)
        wide = torch.promote_types(dtype, torch.float32)
        logs = []
        for logits in (input, target):
            kept = logits.to(wide)
            if mask is not None:
                kept = torch.where(mask.unsqueeze(-1), kept, 0.0)
            logs.append(torch.log_softmax(kept / temperature, -1))
        rows = self.rows(*logs, *parameters)
        if mask is not None:
            rows = torch.where(mask, rows, 0.0)
        return total_of(rows, mask, reduction).to(dtype)

    def check(self, reduction: str, **parameters: float) -> None:
        """Raise ValueError for an unknown reduction or a parameter out of its domain."""
        check_reduction(reduction)
        check_parameters(self.name, self.parameters, parameters)

    def compute(
        self,
        input: Tensor,
        target: Tensor,
        mask: Tensor | None,
        reduction: str,
        **parameters: float,
    ) -> Tensor:
        """Return the loss by its operator, which takes the parameters in the spec's order."""
        self.check(reduction, **parameters)
        numbers = [parameters[parameter.name] for parameter in self.parameters]
        loss: Tensor = getattr(operators, self.name)(input, target, mask, reduction, *numbers)
        return loss


class DistanceModule:
    """A distance with its settings, which raise ValueError when they are invalid.

    ``losscli.nn`` combines its subclasses with ``torch.nn.Module``.
    """

    spec: Callable[[], RowFunctorSpec]
    reduction: str

    def _set(self, reduction: str, **parameters: float) -> None:
        type(self).spec().check(reduction, **parameters)
        self.reduction = reduction
        for name, value in parameters.items():
            setattr(self, name, value)

    def forward(self, input: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the distance between the rows of ``input`` and ``target`` that ``mask`` keeps."""
        spec = type(self).spec()
        named: dict[str, Any] = {each.name: getattr(self, each.name) for each in spec.parameters}
        return spec.loss(input, target, mask=mask, reduction=self.reduction, **named)

    def extra_repr(self) -> str:
        """Show the settings where the module is printed."""
        names = ("reduction", *[each.name for each in type(self).spec().parameters])
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in names)


class TemperedModule(DistanceModule):
    """A distance with no parameter but the temperature."""

    def __init__(self, *, temperature: float = 1.0, reduction: str = "mean") -> None:
        super().__init__()
        self._set(reduction, temperature=temperature)
