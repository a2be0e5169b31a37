"""What the kernels over rows make of logits: losses, sums of exponentials and gradients."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from losscli.losses.formulas import widened


class Settings(NamedTuple):
    """The settings of a loss of logits, as cross entropy's."""

    ignore_index: int = -100
    label_smoothing: float = 0.0
    temperature: float = 1.0
    softcap: float = 0.0
    z_loss: float = 0.0
    entropy: bool = False
    """Whether each row has its entropy besides, in place of all but temperature and softcap."""


def losses_in_place(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    settings: Settings,
    reduction: str = "none",
) -> Tensor:
    """Return cross entropy, and write its gradient over the logits."""
    loss: Tensor = torch.ops.losscli.cross_entropy_with_grad_(
        logits, target, weight, reduction, *map(float, settings[:5])
    )
    return loss


class Bent(NamedTuple):
    """Logits as the exponentials take them: bent by a softcap."""

    logits: Tensor
    temperature: float
    """What divides them still."""
    slope: Tensor | None
    """The derivative of bent logits, None for 1 / temperature."""

    @classmethod
    def of(cls, logits: Tensor, settings: Settings) -> Bent:
        """Bend logits; of 16 bits in float32, so that nothing is rounded in between."""
        if not settings.softcap:
            return cls(logits, settings.temperature, None)
        raw = logits.to(widened(logits.dtype)) / (settings.temperature * settings.softcap)
        slope = raw.tanh_()
        bent = slope * settings.softcap
        return cls(bent, 1.0, slope.square_().neg_().add_(1).div_(settings.temperature))

    def log_probs(self, number: Tensor, *, entropy: bool = False) -> Tensor:
        """Return the log-probability of a class of each row; with the entropy, ``(2, N)``."""
        found: Tensor = torch.ops.losscli.token_log_probs(
            self.logits, number, "none", self.temperature, float(entropy)
        )
        return found


def log_sums_of(bent: Bent) -> Tensor:
    """Return the logarithm of each row's sum of exponentials, found from the largest."""
    top, number = bent.logits.max(1)
    largest = top.to(widened(top.dtype)) / bent.temperature
    # Of no class that is possible the sum is 0.
    return torch.where(largest == -torch.inf, largest, largest - bent.log_probs(number))


def slice_gradient(
    bent: Bent,
    number: Tensor,
    value: Tensor,
    incoming: Tensor,
    share: Tensor | None,
    weight: Tensor | None,
) -> Tensor:
    """Return the gradient of some classes' logits by the kernel of log-probabilities.

    Args:
        bent: the logits, ``(N, c)``.
        number: a class of each row whose gradient is ``value``; the kernel has those of others.
        value: times the temperature.
        incoming: what the kernel multiplies by: ``(N)``, or ``(2, N)`` with entropies.
        share: what multiplies the weights of classes in each row, or None.
        weight: the weights of these classes.
    """
    settings = ("none", bent.temperature, float(incoming.dim() == 2))
    gradient: Tensor = torch.ops.losscli.token_log_probs_backward(
        incoming, bent.logits, number, *settings, [True]
    )
    if share is not None:
        weights = (
            gradient.new_ones(gradient.shape[1]) if weight is None else weight.to(gradient.dtype)
        )
        gradient.addr_((share / bent.temperature).to(gradient.dtype), weights, alpha=-1)
    value = (value / bent.temperature).to(gradient.dtype)
    gradient.scatter_(1, number.unsqueeze(1), value.unsqueeze(1))
    return gradient if bent.slope is None else gradient.mul_(bent.slope)
