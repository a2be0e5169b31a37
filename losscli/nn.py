"""The losses as modules, drop-in for those of torch.nn."""

from __future__ import annotations

import torch
from torch import Tensor

from losscli import functional

__all__ = ["HingeLoss", "MSELoss", "SmoothL1Loss"]


class SmoothL1Loss(torch.nn.Module):
    """See :func:`losscli.functional.smooth_l1_loss`."""

    def __init__(self, *, reduction: str = "mean", beta: float = 1.0) -> None:
        super().__init__()
        self.reduction, self.beta = reduction, beta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss of ``input`` against ``target``."""
        return functional.smooth_l1_loss(input, target, reduction=self.reduction, beta=self.beta)

    def extra_repr(self) -> str:
        """Show the settings where the module is printed."""
        return f"reduction={self.reduction!r}, beta={self.beta!r}"


class MSELoss(torch.nn.Module):
    """See :func:`losscli.functional.mse_loss`."""

    def __init__(self, *, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = reduction

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss of ``input`` against ``target``."""
        return functional.mse_loss(input, target, reduction=self.reduction)

    def extra_repr(self) -> str:
        """Show the settings where the module is printed."""
        return f"reduction={self.reduction!r}"


class HingeLoss(torch.nn.Module):
    """See :func:`losscli.functional.hinge_loss`."""

    def __init__(self, *, reduction: str = "mean", margin: float = 1.0) -> None:
        super().__init__()
        self.reduction, self.margin = reduction, margin

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss of ``input`` against ``target``."""
        return functional.hinge_loss(input, target, reduction=self.reduction, margin=self.margin)

    def extra_repr(self) -> str:
        """Show the settings where the module is printed."""
        return f"reduction={self.reduction!r}, margin={self.margin!r}"
