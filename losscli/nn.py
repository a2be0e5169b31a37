"""The losses as modules, as those of torch.nn, with keyword-only settings.

Each module has an expectation of the gradient that comes into its backward pass: the number that
the last one found. Forward writes the gradients for it, so that backward has nothing left to do.
Give each head of a model a module of its own, then heads of the same shape with different weights
do not spoil each other's. The results do not depend on it.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor

from losscli.extension import operators as operators  # defines torch.ops.losscli
from losscli.losses import LOSSES, REDUCTIONS

__all__ = ["HingeLoss", "MSELoss", "SmoothL1Loss"]


_OPERATORS = torch.ops.losscli
_smooth_l1 = _OPERATORS.smooth_l1.default
_mse = _OPERATORS.mse.default
_hinge = _OPERATORS.hinge.default

_sites = itertools.count(1)
"""Numbers the modules of this process; the functions are 0."""


class _Loss(torch.nn.Module):
    """A loss with its settings, which are checked where they are given: ValueError."""

    def __init__(self, loss: str, reduction: str, **parameters: float) -> None:
        super().__init__()
        if reduction not in REDUCTIONS:
            raise ValueError(
                f"reduction must be 'none', 'mean' or 'sum', but is {reduction!r}",
            )
        for parameter in LOSSES[loss].parameters:
            if wrong := parameter.check(parameters[parameter.name]):
                raise ValueError(f"{loss}: {wrong}")
        self.reduction = reduction
        for name, value in parameters.items():
            setattr(self, name, value)
        self._settings = ("reduction", *parameters)
        self._site = next(_sites)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Give a copy, or a module out of a file, a number of its own."""
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._site = next(_sites)

    def extra_repr(self) -> str:
        """Show the settings where the module is printed."""
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in self._settings)


class SmoothL1Loss(_Loss):
    """See :func:`losscli.functional.smooth_l1_loss`."""

    beta: float

    def __init__(self, *, reduction: str = "mean", beta: float = 1.0) -> None:
        super().__init__("smooth_l1", reduction, beta=beta)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss of ``input`` against ``target``."""
        loss: Tensor = _smooth_l1(input, target, self.reduction, self.beta, self._site)
        return loss


class MSELoss(_Loss):
    """See :func:`losscli.functional.mse_loss`."""

    def __init__(self, *, reduction: str = "mean") -> None:
        super().__init__("mse", reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss of ``input`` against ``target``."""
        loss: Tensor = _mse(input, target, self.reduction, self._site)
        return loss


class HingeLoss(_Loss):
    """See :func:`losscli.functional.hinge_loss`."""

    margin: float

    def __init__(self, *, reduction: str = "mean", margin: float = 1.0) -> None:
        super().__init__("hinge", reduction, margin=margin)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss of ``input`` against ``target``."""
        loss: Tensor = _hinge(input, target, self.reduction, self.margin, self._site)
        return loss
