"""Calls the operators of row-wise losses."""

from __future__ import annotations

from typing import Any

from losscli.machine.pytorch import Tensor, torch

from .. import operators
from ..calling import Arguments, Calls
from ..formulas import promoted

IN_PLACE = {
    "inplace": """overwrite the first operand with the gradient and return it, which saves memory;
        if it requires grad, call this under ``torch.no_grad()``."""
}
_MOST_ACCEPTED = 64
"""Settings that are cached, so that a training step is checked once."""


class RowCalls(Calls):
    """The calls of one row-wise loss."""

    def __init__(self, name: str, *, in_place: bool = False, composing: str = "") -> None:
        """``composing``: the operator for calls that are composed, if not the reference."""
        super().__init__(name)
        self.in_place, self.composing = in_place, composing or f"{name}_reference"
        self.further = IN_PLACE if in_place else {}
        self._accepted: dict[tuple[Any, ...], tuple[Any, ...]] = {}

    def loss(self, given: Arguments, *site: int) -> Tensor:
        """Return the loss; ``site`` identifies a module."""
        settings = self._settings(given)
        if operators.are_distributed(given.operands):
            loss: Tensor = operators.OF_DTENSORS["rows"](self, given)
        elif given.composed:
            loss = operators.OPERATORS[self.composing](*given.operands, *settings)
        else:
            operator = operators.OPERATORS[given.operator or self.name]
            loss = operator(*given.operands, *settings, *site)
        return loss

    def loss_with_grad(
        self, given: Arguments, *, grad_output: Tensor | float = 1.0, inplace: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Return the loss and the first operand's gradient, from one launch."""
        if operators.are_distributed(given.operands):
            raise NotImplementedError(
                f"{self.name}_with_grad takes no DTensors; call {self.name} and backward()"
            )
        every: list[Any] = [*given.operands, *self._settings(given)]
        first, *others = every
        operator = given.operator or self.name
        if inplace:
            loss = operators.OPERATORS[f"{operator}_with_grad_"](first, *others)
            return loss.to(_dtype_of(given.operands)), first
        if not given.composed:
            loss, gradient = operators.OPERATORS[f"{operator}_with_grad"](first, *others)
        else:
            with torch.enable_grad():
                first = first.detach().requires_grad_()
                others = [x.detach() if isinstance(x, torch.Tensor) else x for x in others]
                loss = operators.OPERATORS[self.composing](first, *others)
                (gradient,) = torch.autograd.grad(loss.sum(), first)
                loss = loss.detach()
        return loss, gradient if given.restored is None else given.restored(gradient)

    def _settings(self, given: Arguments) -> tuple[Any, ...]:
        if operators.is_compiling():
            return (given.reduction, *map(float, given.parameters))
        settings = (given.reduction, given.parameters)
        checked = self._accepted.get(settings)
        if checked is None:
            pairs = zip(self.parameters, given.parameters, strict=True)
            self.check({"reduction": given.reduction, **{p.name: v for p, v in pairs}})
            checked = (given.reduction, *map(float, given.parameters))
            if len(self._accepted) < _MOST_ACCEPTED:
                self._accepted[settings] = checked
        return checked


def _dtype_of(operands: tuple[Tensor, ...]) -> torch.dtype:
    first, second, *_ = operands
    if not second.is_floating_point():
        return first.dtype
    return promoted(*(each for each in operands if each is not None))
