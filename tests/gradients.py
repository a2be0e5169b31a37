"""A loss with its gradients, in one tuple that can be compared."""

import torch
from torch import Tensor


def both(loss: Tensor, *leaves: Tensor, incoming: Tensor | None = None) -> tuple[Tensor, ...]:
    return (loss.detach(), *torch.autograd.grad(loss, leaves, incoming))


def ramp(loss: Tensor) -> Tensor:
    """Return incoming gradients that are not 1, and differ by row."""
    ones = torch.arange(loss.numel(), device=loss.device) % 5 - 2.5
    return ones.view(loss.shape).to(loss.dtype)
