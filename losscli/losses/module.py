"""The base of the loss modules; ``losscli.nn`` combines it with torch.nn.Module."""

from __future__ import annotations

import itertools
from typing import Any

from .reduction import REDUCTIONS
from .spec import LossSpec

_sites = itertools.count(1)
"""Numbers of the modules of this process; the functions have number 0."""


class LossModule:
    """A loss with its settings, which raise ValueError when they are invalid.

    ``losscli.nn`` combines its subclasses with ``torch.nn.Module``, so that describing a loss needs
    no torch.
    """

    reduction: str
    _site: int

    def __init__(self, spec: LossSpec, reduction: str, **parameters: float) -> None:
        super().__init__()
        if reduction not in REDUCTIONS:
            raise ValueError(
                f"reduction must be 'none', 'mean' or 'sum', but is {reduction!r}",
            )
        for parameter in spec.parameters:
            if wrong := parameter.check(parameters[parameter.name]):
                raise ValueError(f"{spec.name}: {wrong}")
        self.reduction = reduction
        for name, value in parameters.items():
            setattr(self, name, value)
        self._settings = ("reduction", *parameters)
        self._site = next(_sites)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Give a copied or loaded module a new number."""
        super().__setstate__(state)  # type: ignore[misc]
        self._site = next(_sites)

    def extra_repr(self) -> str:
        """Show the settings where the module is printed."""
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in self._settings)
