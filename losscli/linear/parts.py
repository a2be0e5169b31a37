"""Some of the classes: what they are to the loss of each row, how parts make a whole, gradients.

A part is a slice of the classes, made in turn, or the shard of a rank. Of each row it has the
largest logit, the logarithm of the sum of exponentials beside that one's, and minus the logarithm
of the probability of the row's own class among its classes: three numbers, from which parts make
those of all classes. Logits are subtracted from each other before anything is rounded, so that
numbers far from 0 lose no digits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from losscli.losses.formulas import widened

from . import products
from .kernels import part_gradient, part_terms
from .rows import Factors, Rows


class Terms(NamedTuple):
    """What classes are to the loss of each row: ``(N)`` each, of several parts ``(parts, N)``."""

    surprise: Tensor
    """Minus the log-probability of the row's class among these; any number where it is another."""
    top: Tensor
    """The largest logit before the temperature divides it; where none is possible the lowest."""
    log: Tensor
    """The logarithm of the sum of exponentials, beside that of the largest."""
    logits: Tensor | None = None
    """The sum of logits times the weights of classes, where label smoothing asks for it."""
    entropy: Tensor | None = None
    """The entropy of these classes' probabilities among themselves, if it is asked for."""

    @classmethod
    def stacked(cls, parts: Sequence[Terms]) -> Terms:
        """Return the terms of several parts."""
        if len(parts) == 1:
            (part,) = parts
            return cls(*(None if each is None else each.unsqueeze(0) for each in part))  # type: ignore[arg-type]
        fields = zip(*parts, strict=True)
        return cls(*(None if each[0] is None else torch.stack(each) for each in fields))  # type: ignore[arg-type]

    def log_sums(self, temperature: float) -> Tensor:
        """Return the logarithm of each row's sum of exponentials."""
        return self.top / temperature + self.log


def together(parts: Terms, own: Tensor, temperature: float) -> tuple[Terms, Tensor]:
    """Return the terms of the classes of all parts, and the logarithm of the share of each part.

    Args:
        parts: the terms of each part.
        own: which part has the row's class, ``(parts, N)``; one or none of each row.
        temperature: divides the largest logits.
    """
    if len(parts.top) == 1:
        alone = Terms(*(None if each is None else each[0] for each in parts))  # type: ignore[arg-type]
        return alone, torch.zeros_like(parts.top)
    top = parts.top.amax(0)
    raised = parts.top - top
    raised = (raised if temperature == 1 else raised / temperature) + parts.log
    log = raised.exp().sum(0).log()  # of numbers up to those of a part, and one of at least 0
    shares = torch.where(log == -torch.inf, -torch.inf, raised - log)
    of_own = torch.where(own, raised, 0.0).sum(0)
    inside = torch.where(own, parts.surprise, 0.0).sum(0)
    # None of that part's classes is possible.
    inside = torch.where(of_own == -torch.inf, torch.inf, inside)
    above = inside - of_own
    rest = torch.where(own, 0.0, (raised + above).exp()).sum(0)
    # What the other parts have is added to what the own one lacks of 1.
    near, far = torch.log1p(torch.expm1(inside) + rest), log + above
    surprise = torch.where(far < 1, near, far)
    logits = None if parts.logits is None else parts.logits.sum(0)
    entropy = None
    if parts.entropy is not None:
        terms = shares.exp() * (parts.entropy - shares)
        entropy = torch.where(shares == -torch.inf, 0.0, terms).sum(0)
        entropy = torch.where(log == -torch.inf, torch.nan, entropy)
    return Terms(surprise, top, log, logits, entropy), shares


@dataclass(frozen=True)
class Shard:
    """Which of all classes a rank has, and how the ranks put together what each of them knows."""

    first: int
    """The number of its first class."""
    classes: int
    """How many classes all ranks have."""
    exchange: Callable[[Rows, Terms], tuple[Rows, Terms, Tensor]]
    """Makes the terms of this rank's classes those of all: returns the rows, which then know the
    weights of all classes, the terms, and the logarithm of this rank's share, ``(N)``."""
    summed: Callable[[Tensor], Tensor]
    """Returns the sum of a tensor over the ranks."""


def refuse_second_derivatives() -> None:
    """Raise NotImplementedError in a backward pass of ranks that is to be differentiated."""
    if torch.is_grad_enabled():
        raise NotImplementedError(
            "losses over ranks have first derivatives alone: call backward without "
            "create_graph=True, or the loss of gathered logits"
        )


class Found(NamedTuple):
    """What backward needs of the rows, besides the logits."""

    surprise: Tensor
    top: Tensor
    log: Tensor
    shares: Tensor
    """The logarithm of the share of each part, ``(parts, N)``."""
    factor: Tensor
    own_weight: Tensor | None = None
    total_weight: Tensor | None = None
    entropy: Tensor | None = None
    entropies: Tensor | None = None
    """Of each part, ``(parts, N)``."""


def finished(
    rows: Rows, parts: Terms, own: Tensor, shard: Shard | None = None
) -> tuple[Tensor, Tensor | None, Found]:
    """Return the losses of rows, the logarithms of their sums, and what backward needs.

    Args:
        rows: the rows.
        parts: the terms of each part of this rank's classes.
        own: which part has the row's class, ``(parts, N)``.
        shard: where other ranks have classes too.
    """
    temperature = rows.settings.divisor
    whole, shares = together(parts, own, temperature)
    if shard is not None:
        rows, whole, of_rank = shard.exchange(rows, whole)
        shares = shares + of_rank
    needs = rows.with_log_sums or rows.takes_log_sums
    log_sums = whole.log_sums(temperature) if needs else whole.log
    surprise = whole.surprise.masked_fill(rows.wrong, torch.nan)
    found = Found(surprise, whole.top, whole.log, shares, surprise.new_ones(()), *rows.gathered)
    shown = log_sums if rows.with_log_sums else None
    if whole.entropy is not None:
        values = torch.stack([-surprise, whole.entropy])
        return values, shown, found._replace(entropy=whole.entropy, entropies=parts.entropy)
    losses, factor = rows.reduced(rows.losses(surprise, log_sums, whole.logits))
    return losses, shown, found._replace(factor=factor)


@dataclass
class Gradients:
    """What the gradients of all parts of the logits have in common."""

    rows: Rows
    found: Found
    factors: Factors

    @classmethod
    def of(cls, rows: Rows, found: Found, incoming: Tensor) -> Gradients:
        """Return them for an incoming gradient."""
        rows = rows.with_gathered(found.own_weight, found.total_weight)
        log_sums = found.log
        if rows.takes_log_sums:
            log_sums = rows.counted(found.top / rows.settings.divisor + found.log)
        return cls(rows, found, rows.factors(incoming * found.factor, log_sums, found.entropy))

    def scaled(self, dtype: torch.dtype) -> tuple[Gradients, Tensor]:
        """Return them over a number, and that number, for which ``dtype`` can hold them."""
        power = products.power_of(self.factors.of_all, dtype)
        return Gradients(self.rows, self.found, self.factors.scaled(power)), power

    @cached_property
    def of_own(self) -> Tensor:
        """Return the gradient of each row's own class, times the temperature."""
        surprise = self.rows.counted(self.found.surprise)
        found: Tensor = self.factors.of_row(surprise, self.rows.own_weight)
        return found


@dataclass
class Part:
    """Some classes' logits."""

    rows: Rows
    logits: Tensor
    """``(N, c)``."""
    classes: slice
    """Their numbers among all classes."""

    @cached_property
    def _place(self) -> Tensor:
        place: Tensor = self.rows.target - self.classes.start
        return place

    @cached_property
    def inside(self) -> Tensor:
        """Return whether each row's own class is among them."""
        if self.logits.shape[1] == 0:
            return torch.zeros_like(self._place, dtype=torch.bool)
        return self.number == self._place

    @cached_property
    def number(self) -> Tensor:
        """Return the place of that class, of other rows the first or the last."""
        return self._place.clamp(0, max(self.logits.shape[1] - 1, 0))

    @property
    def weight(self) -> Tensor | None:
        """Return the weights of these classes."""
        first = self.rows.first
        if self.rows.class_weight is None:
            return None
        return self.rows.class_weight[self.classes.start - first : self.classes.stop - first]

    def terms(self) -> Terms:
        """Return what these classes are to the loss of each row."""
        settings = self.rows.settings
        if self.logits.numel() == 0:
            zero = self.logits.new_zeros(len(self.logits), dtype=widened(self.logits.dtype))
            nothing = torch.full_like(zero, -torch.inf)
            lowest = torch.full_like(zero, torch.finfo(zero.dtype).min)
            logits = zero if settings.label_smoothing else None
            return Terms(zero, lowest, nothing, logits, zero if settings.entropy else None)
        return Terms(*part_terms(self.logits, self.number, self.weight, settings))

    def gradient(self, of: Gradients, k: int) -> Tensor:
        """Return the gradient of these logits, the k-th part, in their dtype."""
        if self.logits.numel() == 0:
            return torch.empty_like(self.logits)
        rows, found, factors = self.rows, of.found, of.factors
        share = found.shares[k]
        # A row without any possible class in this part: not even 0 times its probabilities.
        left_out = (share == -torch.inf) & (found.log > -torch.inf)
        if rows.ignored is not None:
            left_out = left_out | rows.ignored
        into = share.exp() * factors.of_all
        of_log = None
        if factors.of_log is not None and found.entropies is not None:
            # The kernel takes p and log(p) of this part alone: share times p, log(share) more.
            of_log = share.exp() * factors.of_log
            into = into + torch.where(of_log == 0, 0.0, of_log * (share - found.entropies[k]))
        first = self.logits.gather(1, self.number.unsqueeze(1)).squeeze(1)
        bent, slope = rows.settings.bent(first.to(found.top.dtype))
        below = bent - found.top
        below = below if rows.settings.divisor == 1 else below / rows.settings.divisor
        value = factors.of_class(below - found.log)
        if factors.of_share is not None:
            # The own class has its share already.
            weight = 1.0 if self.weight is None else self.weight[self.number]
            value = value - factors.of_share * weight
        value = rows.counted(torch.where(self.inside, of.of_own, value))
        value = value if isinstance(slope, float) and slope == 1 else value * slope
        return part_gradient(
            self.logits,
            self.number,
            value,
            left_out,
            torch.stack([into, of_log]) if of_log is not None else into,
            factors.of_share,
            self.weight,
            rows.settings,
        )
