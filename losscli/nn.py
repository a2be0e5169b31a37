"""The losses as modules, as those of torch.nn, with keyword-only settings."""

from __future__ import annotations

import torch
from torch import Tensor

from losscli import functional
from losscli.losses import LOSSES, REDUCTIONS

__all__ = ["HingeLoss", "MSELoss", "SmoothL1Loss"]


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
        return functional.smooth_l1_loss(input, target, reduction=self.reduction, beta=self.beta)


class MSELoss(_Loss):
    """See :func:`losscli.functional.mse_loss`."""

    def __init__(self, *, reduction: str = "mean") -> None:
        super().__init__("mse", reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss of ``input`` against ``target``."""
        return functional.mse_loss(input, target, reduction=self.reduction)


class HingeLoss(_Loss):
    """See :func:`losscli.functional.hinge_loss`."""

    margin: float

    def __init__(self, *, reduction: str = "mean", margin: float = 1.0) -> None:
        super().__init__("hinge", reduction, margin=margin)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss of ``input`` against ``target``."""
        return functional.hinge_loss(input, target, reduction=self.reduction, margin=self.margin)
