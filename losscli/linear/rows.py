"""What is known of the rows of a call: their classes, what they count, and what is asked for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from losscli.losses.formulas import widened

from .kernels import Settings


class Factors(NamedTuple):
    """What the gradient of a row's logits is made of.

    Of each class, with ``p`` its probability and ``w`` its weight, it is
    ``p * (of_all + of_log * log(p)) - of_share * w``; of the row's own class ``of_own`` less; all
    of it over the temperature.
    """

    of_all: Tensor
    of_own: Tensor
    of_log: Tensor | None = None
    of_share: Tensor | None = None
    """What multiplies the weight of each class, where label smoothing shares the loss out."""

    def scaled(self, by: Tensor) -> Factors:
        """Return the factors over a number."""
        of_all, of_own, *rest = (None if each is None else each / by for each in self)
        assert of_all is not None
        assert of_own is not None
        return Factors(of_all, of_all if self.of_all is self.of_own else of_own, *rest)

    def of_class(self, log_p: Tensor) -> Tensor:
        """Return the gradient of a class of each row but for its share, from ``log(p)``."""
        p = log_p.exp()
        found = p * self.of_all
        if self.of_log is None:
            return found
        return found + torch.where(p == 0, p, p * log_p) * self.of_log

    def of_row(self, surprise: Tensor, class_weight: Tensor | None) -> Tensor:
        """Return the gradient of each row's own class, which keeps its digits where p is near 1.

        ``surprise`` is ``-log(p)``, ``class_weight`` the weight of the row's class.
        """
        found = torch.expm1(-surprise) * self.of_own
        if self.of_log is not None or self.of_all is not self.of_own:
            rest = self._replace(of_all=self.of_all - self.of_own)
            found = found + rest.of_class(-surprise)
        if self.of_share is None:
            return found
        return found - self.of_share * (1.0 if class_weight is None else class_weight)


@dataclass(frozen=True)
class Rows:
    """The rows of one call."""

    target: Tensor
    """The class of each row, in int64."""
    classes: int
    class_weight: Tensor | None
    settings: Settings
    reduction: str
    may_ignore: bool
    """Whether there may be rows that do not count."""
    with_log_sums: bool
    """Whether the logarithms of the sums of exponentials are asked for."""
    first: int = 0
    """The number of the first class of which logits and weights are here; others have the rest."""
    gathered: tuple[Tensor | None, Tensor | None] = (None, None)
    """The weight of each row's class and the sum of all weights, where others have some of them."""

    def with_gathered(self, own: Tensor | None, total: Tensor | None) -> Rows:
        """Return the rows with what others know of their weights."""
        return replace(self, gathered=(own, total))

    @cached_property
    def known(self) -> Tensor:
        """Return class numbers, in place of those that are none the first or the last."""
        return self.target.clamp(0, max(self.classes - 1, 0))

    @cached_property
    def ignored(self) -> Tensor | None:
        """Return which rows do not count, if there may be some."""
        return self.target == self.settings.ignore_index if self.may_ignore else None

    @cached_property
    def wrong(self) -> Tensor:
        """Return which rows count and have no class."""
        wrong = self.target != self.known
        return wrong if self.ignored is None else wrong & ~self.ignored

    @cached_property
    def own_weight(self) -> Tensor | None:
        """Return the weight of each row's class."""
        if self.gathered[0] is not None:
            return self.gathered[0]
        return None if self.class_weight is None else self.class_weight[self.known]

    def weighted(self, values: Tensor) -> Tensor:
        """Return numbers of rows times the weights of their classes."""
        return values if self.own_weight is None else values * self.own_weight.to(values.dtype)

    def counted(self, values: Tensor) -> Tensor:
        """Return numbers of rows, 0 where a row is ignored."""
        return values if self.ignored is None else values.masked_fill(self.ignored, 0.0)

    def reduced(self, losses: Tensor) -> tuple[Tensor, Tensor]:
        """Return the losses as they are asked for, and what that multiplies gradients by."""
        if self.reduction == "none":
            return losses, losses.new_ones(())
        total = losses.sum(dtype=torch.float64)
        if self.reduction == "sum":
            return total.to(losses.dtype), losses.new_ones(())
        if self.own_weight is None and self.ignored is None:
            count = torch.full_like(total, float(len(losses)))
        else:
            ones = losses.new_ones(len(losses))
            count = self.counted(self.weighted(ones)).sum(dtype=torch.float64)
        factor = 1 / count
        if self.ignored is not None:
            # Where no row counts, the mean is NaN and its gradient 0, as PyTorch's.
            factor = torch.where(self.ignored.all(), 0.0, factor)
        return (total / count).to(losses.dtype), factor.to(losses.dtype)

    @property
    def takes_log_sums(self) -> bool:
        """Tell whether losses and gradients depend on the logarithms of sums themselves."""
        return self.settings.label_smoothing != 0 or self.settings.z_loss != 0

    def losses(self, surprise: Tensor, log_sums: Tensor, logits: Tensor | None) -> Tensor:
        """Return the losses of rows.

        Args:
            surprise: minus the log-probability of each row's class.
            log_sums: the logarithm of each row's sum of exponentials; any numbers unless
                ``takes_log_sums``.
            logits: the sum of each row's logits times the weights of their classes, where label
                smoothing asks for it.
        """
        found = self.weighted(surprise)
        smoothing = self.settings.label_smoothing
        if logits is not None:
            shared = (self._total_weight * log_sums - logits) * (smoothing / self.classes)
            found = (1 - smoothing) * found + shared
        if self.settings.z_loss:
            found = found + self.settings.z_loss * log_sums**2
        return self.counted(found)

    def factors(self, incoming: Tensor, log_sums: Tensor, entropy: Tensor | None) -> Factors:
        """Return what the gradient of each row is made of."""
        if entropy is not None:
            of_token, of_entropy = incoming
            of_all = -of_token - of_entropy * entropy
            return Factors(of_all.masked_fill(self.wrong, torch.nan), -of_token, -of_entropy)
        incoming = self.counted(incoming.expand(len(self.target)))
        incoming = incoming.masked_fill(self.wrong, torch.nan)
        smoothing = self.settings.label_smoothing
        of_own = self.weighted(incoming)
        of_all, of_share = of_own, None
        if smoothing:
            of_own = of_all = of_own * (1 - smoothing)
            of_share = incoming * (smoothing / self.classes)
            of_all = of_all + of_share * self._total_weight
        if self.settings.z_loss:
            of_all = of_all + incoming * (2 * self.settings.z_loss) * log_sums
        return Factors(of_all, of_own, None, of_share)

    @cached_property
    def _total_weight(self) -> Tensor | float:
        if self.gathered[1] is not None:
            return self.gathered[1]
        if self.class_weight is None:
            return float(self.classes)
        return self.class_weight.sum(dtype=widened(self.class_weight.dtype))
