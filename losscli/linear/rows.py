"""The rows of a call to a fused linear loss, and a rank's shard of their classes."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from losscli.losses.formulas import widened

from .kernels import Settings


class Whole(NamedTuple):
    """The rows, from all parts."""

    numbers: Tensor
    """``(numbers, N)``, as for a part."""
    values: Tensor
    """``(3, N)``: each row's loss, weight in a mean, and whether it counts; with entropies ``(2,
    N)``, log-probabilities and entropies."""
    total_weight: Tensor | None
    """The sum of all class weights, if label smoothing needs it."""


@dataclass(frozen=True)
class Shard:
    """A rank's classes, and how ranks combine their numbers."""

    name: str
    first: int
    classes: int
    """The number of classes on all ranks."""
    exchange: Callable[["Rows", Tensor], Whole]
    """Combines this rank's numbers with all others."""
    summed: Callable[[Tensor], Tensor] | None
    """Sums a tensor over the ranks; None to leave gradients partial."""


@dataclass(frozen=True)
class Rows:
    """The classes and weights of rows, and the requested results."""

    target: Tensor
    """The class of each row, in int64."""
    classes: int
    class_weight: Tensor | None
    settings: Settings
    reduction: str
    may_ignore: bool
    with_log_sums: bool
    shard: Shard | None = None
    """The classes whose logits and weights are here; None for all."""

    @property
    def first(self) -> int:
        """The first class whose logits and weights are here."""
        return self.shard.first if self.shard else 0

    @cached_property
    def known(self) -> Tensor:
        """Class indices, with 0 in place of invalid ones."""
        inside = (self.target >= 0) & (self.target < self.classes)
        return torch.where(inside, self.target, 0)

    @cached_property
    def ignored(self) -> Tensor | None:
        """Which rows are ignored, or None if none can be."""
        return self.target == self.settings.ignore_index if self.may_ignore else None

    @cached_property
    def _own_weight(self) -> Tensor | None:
        return None if self.class_weight is None else self.class_weight[self.known]

    def weighted(self, values: Tensor) -> Tensor:
        """Return row values times class weights, 0 for ignored rows."""
        if self._own_weight is not None:
            values = values * self._own_weight.to(values.dtype)
        return values if self.ignored is None else values.masked_fill(self.ignored, 0.0)

    def weigh_apart(self, dtype: torch.dtype) -> bool:
        """Tell whether class weights multiply whole rows; small ones would cost float16 digits."""
        alone = not (self.settings.label_smoothing or self.settings.z_loss)
        return dtype == torch.float16 and self.class_weight is not None and alone

    def reduced(self, losses: Tensor) -> tuple[Tensor, Tensor]:
        """Return the reduced losses, and the factor for gradients."""
        one = losses.new_ones(())
        if self.reduction == "none":
            return losses, one
        total = losses.sum(dtype=torch.float64)
        if self.reduction == "sum":
            return total.to(losses.dtype), one
        count = self.weighted(losses.new_ones(len(losses))).sum(dtype=torch.float64)
        # If no row counts, the mean is NaN and its gradient 0, as in PyTorch.
        ignored = losses.new_zeros(len(losses), dtype=torch.bool)
        nothing = (ignored if self.ignored is None else self.ignored).all()
        factor = torch.where(nothing, 0.0, 1 / count)
        return (total / count).to(losses.dtype), factor.to(losses.dtype)

    @cached_property
    def total_weight(self) -> Tensor | None:
        """The sum of these classes' weights, if label smoothing needs it."""
        if self.class_weight is None or not self.settings.label_smoothing:
            return None
        return self.class_weight.sum(dtype=widened(self.class_weight.dtype))

    @property
    def of_parts(self) -> tuple[float | None, ...]:
        """The arguments of the operators of parts; see csrc/torch/parts.cpp."""
        _, *numbers, entropy = self.settings
        ignored = self.settings.ignore_index if self.may_ignore else None
        return (self.classes, ignored, *numbers, entropy, self.class_weight is not None)
