"""The bases of the loss modules; ``losscli.nn`` combines them with torch.nn.Module."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from .calling import Arguments, Calls
from .reduction import REDUCTIONS
from .spec import LossSpec, Parameter

if TYPE_CHECKING:
    from torch import Tensor

_sites = itertools.count(1)
"""Numbers of the modules of this process; the functions have number 0."""


class NumberedModule:
    """A module with a number of its own, by which its calls are told from others.

    ``losscli.nn`` combines its subclasses with ``torch.nn.Module``, so that describing a loss needs
    no torch.
    """

    _site: int

    def __init__(self) -> None:
        super().__init__()
        self._site = next(_sites)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Give a copied or loaded module a new number."""
        super().__setstate__(state)  # type: ignore[misc]
        self._site = next(_sites)


def check_reduction(reduction: str) -> None:
    """Raise ValueError for an unknown reduction."""
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction must be 'none', 'mean' or 'sum', but is {reduction!r}")


def check_parameters(
    name: str, parameters: Sequence[Parameter], given: Mapping[str, float]
) -> None:
    """Raise ValueError for a parameter of a loss that is out of its domain."""
    for parameter in parameters:
        if wrong := parameter.check(given[parameter.name]):
            raise ValueError(f"{name}: {wrong}")


class LossModule(NumberedModule):
    """A loss with its settings, which raise ValueError when they are invalid."""

    calls: ClassVar[Calls]
    reduction: str

    def __init__(self, spec: LossSpec, reduction: str, **parameters: float) -> None:
        super().__init__()
        check_reduction(reduction)
        check_parameters(spec.name, spec.parameters, parameters)
        self.reduction = reduction
        for name, value in parameters.items():
            setattr(self, name, value)
        self._parameters_of_loss = tuple(parameters)

    def forward(self, input: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Return the loss of ``input`` against ``target``, where there is a weight times it."""
        return self._loss((input, target), weight)

    def _loss(self, operands: tuple[Tensor, ...], weight: Tensor | None = None) -> Tensor:
        """Return the loss of any number of operands, with the present settings."""
        parameters = tuple([getattr(self, name) for name in self._parameters_of_loss])
        return self.calls.loss(Arguments(operands, self.reduction, parameters, weight), self._site)

    def extra_repr(self) -> str:
        """Show the settings where the module is printed."""
        names = ("reduction", *self._parameters_of_loss)
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
