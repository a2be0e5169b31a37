"""What the kernels over rows make of logits: losses, sums of exponentials and gradients."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Settings(NamedTuple):
    """The settings of a loss of logits, as cross entropy's."""

    ignore_index: int = -100
    label_smoothing: float = 0.0
    temperature: float = 1.0
    softcap: float = 0.0
    z_loss: float = 0.0
    entropy: bool = False
    """Whether each row has its entropy besides, in place of all but temperature and softcap."""

    @property
    def plain(self) -> bool:
        """Tell whether a row's loss is minus a log-probability."""
        return not (self.label_smoothing or self.softcap or self.z_loss)


def wide(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of losses and factors: at least float32."""
    return torch.promote_types(dtype, torch.float32)


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
        raw = logits.to(wide(logits.dtype)) / (settings.temperature * settings.softcap)
        slope = raw.tanh_()
        bent = slope * settings.softcap
        return cls(bent, 1.0, slope.square_().neg_().add_(1).div_(settings.temperature))

    def log_probs(self, number: Tensor, *, entropy: bool = False) -> Tensor:
        """Return the log-probability of a class of each row; with the entropy, ``(2, N)``."""
        found: Tensor = torch.ops.losscli.token_log_probs(
            self.logits, number, "none", self.temperature, float(entropy)
        )
        return found


class Sums(NamedTuple):
    """What the exponentials of the logits of each row add up to."""

    number: Tensor
    """A class whose probability the sum was found by."""
    logit: Tensor
    """The logit of that class over the temperature."""
    log: Tensor
    """The logarithm of the sum."""
    entropy: Tensor | None
    """The entropy of their shares of the sum."""

    @classmethod
    def of(cls, bent: Bent, *, finite: bool, entropy: bool = False) -> Sums:
        """Add up exponentials.

        ``finite``: whether the logits are finite and of 16 bits. Then any class will do, and no
        pass looks for the largest: what float32 rounds off is little beside what 16 bits do.
        """
        if finite:
            logit = bent.logits[:, 0]
            number = torch.zeros(len(logit), dtype=torch.int64, device=logit.device)
        else:
            logit, number = bent.logits.max(1)
        logit = logit.to(wide(logit.dtype)) / bent.temperature
        found = bent.log_probs(number, entropy=entropy)
        share, own = found.unbind(0) if entropy else (found, None)
        # Of no class that is possible the sum is 0.
        log = torch.where(logit == -torch.inf, logit, logit - share)
        return cls(number, logit, log, own)


class Factors(NamedTuple):
    """What the gradient of a row's logits is made of.

    Of each class, with ``p`` its probability and ``w`` its weight, it is
    ``p * (of_all + of_log * log(p)) - of_share * w``; of the row's own class ``of_own`` less.
    """

    of_all: Tensor
    of_own: Tensor
    of_log: Tensor | None = None
    of_share: Tensor | None = None
    """What multiplies the weight of each class, where label smoothing shares the loss out."""

    def scaled(self, by: Tensor) -> Factors:
        """Return the factors over a number."""
        rest = [None if each is None else each / by for each in self[2:]]
        return Factors(self.of_all / by, self.of_own / by, *rest)


def slice_gradient(
    logits: Tensor,
    inside: Tensor,
    place: Tensor,
    own: Tensor,
    log_sums: Tensor,
    weight: Tensor | None,
    factors: Factors,
    settings: Settings,
    *,
    finite: bool,
) -> Tensor:
    """Return the gradient of some classes' logits, of rows whose sums over all classes are known.

    Args:
        logits: ``(N, c)``, those of these classes.
        inside: whether a row's own class is one of them.
        place: which.
        own: the gradient of the row's own class, by :func:`own_gradient`.
        log_sums: the logarithm of the sum of the exponentials of all logits.
        weight: the weights of these classes.
        factors: what the gradient is made of.
        settings: those of the loss.
        finite: as that of :meth:`Sums.of`.
    """
    bent = Bent.of(logits, settings)
    sums = Sums.of(bent, finite=finite, entropy=factors.of_log is not None)
    share = torch.exp(sums.log - log_sums)
    incoming = -share * factors.of_all
    if factors.of_log is not None:
        # The kernel takes p and log(p) of this slice alone: share times p, and log(share) more.
        assert sums.entropy is not None
        of_log = -share * factors.of_log
        beyond = of_log * (sums.log - log_sums - sums.entropy)
        incoming = incoming + torch.where(share == 0, share, beyond)
        incoming = torch.stack([incoming, of_log])
    settings_of_row = ("none", bent.temperature, float(sums.entropy is not None))
    gradient: Tensor = torch.ops.losscli.token_log_probs_backward(
        incoming, bent.logits, sums.number, *settings_of_row, [True]
    )
    # The kernel took that class for the row's own.
    _put(gradient, sums.number, _element(sums.logit - log_sums, factors) / bent.temperature)
    if factors.of_share is not None:
        shared = factors.of_share / bent.temperature
        weights = torch.ones_like(gradient[0]) if weight is None else weight.to(gradient.dtype)
        gradient.addr_(shared.to(gradient.dtype), weights, alpha=-1)
    _put(gradient, place, own / bent.temperature, inside)
    if bent.slope is not None:
        gradient.mul_(bent.slope)
    return gradient.to(logits.dtype)


def own_gradient(surprise: Tensor, weight: Tensor | None, target: Tensor, of: Factors) -> Tensor:
    """Return the gradient of each row's own class, which keeps its digits where p is near 1.

    Of the logits as the exponentials take them, times the temperature. ``surprise`` is minus the
    logarithm of that class's probability.
    """
    found = torch.expm1(-surprise) * of.of_own
    found = found + _element(-surprise, of._replace(of_all=of.of_all - of.of_own))
    if of.of_share is None:
        return found
    return found - of.of_share * (1.0 if weight is None else weight[target])


def _element(log_p: Tensor, factors: Factors) -> Tensor:
    """Return the gradient of a class that is not the row's own, but for its share."""
    p = log_p.exp()
    found = p * factors.of_all
    if factors.of_log is None:
        return found
    return found + torch.where(p == 0, p, p * log_p) * factors.of_log


def _put(to: Tensor, place: Tensor, value: Tensor, where: Tensor | None = None) -> None:
    """Write a number in one place of each row, in the rows that ``where`` names."""
    column = place.unsqueeze(1)
    new = value.to(to.dtype).unsqueeze(1)
    if where is not None:
        new = torch.where(where.unsqueeze(1), new, to.gather(1, column))
    to.scatter_(1, column, new)
