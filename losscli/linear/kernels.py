"""What the kernels over rows make of logits: losses, sums of exponentials and gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from losscli.losses.formulas import widened

from . import products

_NO_CLASS = -(2**31)
"""The class number that leaves a row out."""
_OF_PART = 2.0
"""How many values the kernel returns of a row besides the first, where others have some classes:
the largest logit, and the logarithm of the sum of exponentials beside that one's. One more is the
entropy."""
_CHUNK = 16 * 2**20
"""Bytes of logits that are bent at a time: what the L2 cache of an H100 holds beside others."""


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
    def divisor(self) -> float:
        """Return what divides logits once a softcap has bent them."""
        return 1.0 if self.softcap else self.temperature

    def bent(self, logits: Tensor) -> tuple[Tensor, Tensor | float]:
        """Return logits as a softcap bends them, and the derivative of them over the divisor."""
        if not self.softcap:
            return logits, 1 / self.temperature
        tangent = torch.tanh(logits / (self.temperature * self.softcap))
        return self.softcap * tangent, (1 - tangent) * (1 + tangent) / self.temperature


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


def part_terms(
    logits: Tensor, number: Tensor, weight: Tensor | None, settings: Settings
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """Return what logits are to the loss of each row: see :class:`losscli.linear.parts.Terms`.

    Args:
        logits: ``(N, c)``, of at least one class.
        number: a class of each row, of whose probability the first is minus the logarithm.
        weight: the weights of the classes.
        settings: of the loss.
    """
    if not settings.softcap:
        return _terms(logits, number, weight, settings)
    found = [
        _terms(
            settings.bent(logits[rows].to(widened(logits.dtype)))[0], number[rows], weight, settings
        )
        for rows in some_rows(logits)
    ]
    return tuple(None if each[0] is None else torch.cat(each) for each in zip(*found, strict=True))  # type: ignore[return-value]


def _terms(
    bent: Tensor, number: Tensor, weight: Tensor | None, settings: Settings
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    temperature = settings.divisor
    more = _OF_PART + settings.entropy
    found: Tensor = torch.ops.losscli.token_log_probs(bent, number, "none", temperature, more)
    log_prob, top, log, *entropy = found.unbind(0)
    logits = None
    if settings.label_smoothing:
        if weight is None:
            logits = bent.sum(1, dtype=log.dtype) / temperature
        else:
            weights = weight.to(bent.dtype).unsqueeze(1)
            logits = products.wide(bent, weights).squeeze(1) / temperature
    return -log_prob, top, log, logits, entropy[0] if entropy else None


def log_sums_of(logits: Tensor, settings: Settings) -> Tensor:
    """Return the logarithm of each row's sum of exponentials."""
    number = torch.zeros(len(logits), dtype=torch.int64, device=logits.device)
    plain = Settings(temperature=settings.temperature, softcap=settings.softcap)
    _, top, log, *_ = part_terms(logits, number, None, plain)
    return top / settings.divisor + log


def part_gradient(
    logits: Tensor,
    number: Tensor,
    value: Tensor,
    left_out: Tensor,
    incoming: Tensor,
    share: Tensor | None,
    weight: Tensor | None,
    settings: Settings,
) -> Tensor:
    """Return the gradient of some classes' logits, in their dtype.

    Args:
        logits: ``(N, c)``, of at least one class.
        number: a class of each row whose gradient is ``value``.
        value: ``(N)``.
        left_out: the rows whose other classes have a probability of 0.
        incoming: what multiplies the probabilities among these classes: ``(N)``; with entropies
            ``(2, N)``, of which the second multiplies the probabilities times the sum of their
            logarithms and the entropy.
        share: what multiplies the weights of classes in each row, or None.
        weight: the weights of these classes.
        settings: of the loss.
    """
    # In 16 bits what smoothing subtracts would be rounded apart from what it is subtracted from.
    rounds = share is not None and logits.dtype in products.NARROW
    if rounds or (settings.softcap and (settings.entropy or share is not None)):
        gradient = torch.empty_like(logits)
        plain = settings._replace(softcap=0.0, temperature=1.0)
        for rows in some_rows(logits):
            bent, slope = settings.bent(logits[rows].to(incoming.dtype))
            some = None if share is None else share[rows]
            found = _slopes(
                bent, number[rows], left_out[rows], incoming[..., rows], some, weight, plain
            )
            gradient[rows] = found.mul_(slope)
    else:
        gradient = _slopes(logits, number, left_out, incoming, share, weight, settings)
    return gradient.scatter_(1, number.unsqueeze(1), value.to(gradient.dtype).unsqueeze(1))


def _slopes(
    logits: Tensor,
    number: Tensor,
    left_out: Tensor,
    incoming: Tensor,
    share: Tensor | None,
    weight: Tensor | None,
    settings: Settings,
) -> Tensor:
    """Return the gradient but for the class of each row."""
    gradient: Tensor
    temperature = settings.temperature
    if settings.entropy:
        gradient = torch.ops.losscli.token_log_probs_backward(
            -incoming, logits, number, "none", temperature, 1.0, [True]
        )
        gradient.masked_fill_(left_out.unsqueeze(1), 0.0)
    else:
        # Of a row that is left out this kernel reads nothing.
        number = torch.where(left_out, _NO_CLASS, number)
        of_loss = ("none", float(_NO_CLASS), 0.0, temperature, settings.softcap, 0.0)
        gradient = torch.ops.losscli.cross_entropy_backward(
            incoming, logits, number, None, *of_loss, [True]
        )
    if share is None:
        return gradient
    weights = gradient.new_ones(gradient.shape[1]) if weight is None else weight.to(gradient.dtype)
    return gradient.addr_((share / temperature).to(gradient.dtype), weights, alpha=-1)


def some_rows(logits: Tensor) -> Iterator[slice]:
    """Yield rows, so many that a cache holds them in float32."""
    return products.parts(len(logits), max(_CHUNK // max(logits.shape[1] * 4, 1), 1))
