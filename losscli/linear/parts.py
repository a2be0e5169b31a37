"""The rows of a call, and parts of their classes: slices, or ranks' shards.

For each row, a part has the log-probability of the row's class within the part, the largest logit,
and the log-sum-exp relative to it. Joined parts have the same for all classes, from which each part
computes its gradient. The formulas are in csrc/parts.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from losscli.losses.formulas import widened
from losscli.operators import loading

from . import products
from .kernels import Settings, part_numbers, weighed_logits


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
        return torch.where((self.target >= 0) & (self.target < self.classes), self.target, 0)

    @cached_property
    def ignored(self) -> Tensor | None:
        """The mask of ignored rows; None if no row can be ignored."""
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


def refuse_second_derivatives(name: str) -> None:
    """Raise NotImplementedError if backward is to be differentiated."""
    if torch.is_grad_enabled():
        raise NotImplementedError(
            f"{name}: losses over ranks have first derivatives alone: call backward without "
            "create_graph=True, or the loss of gathered logits"
        )


_load = cache(loading.load_parts)


def operators(tensor: Tensor) -> Any:
    """Return the operators of csrc/torch/parts.cpp, loaded."""
    _load(tensor.device.type)
    return torch.ops.losscli


def join(
    rows: Rows,
    numbers: Tensor,
    widths: Tensor,
    classes: slice,
    total_weight: Tensor | None,
    rank: int = -1,
) -> Whole:
    """Join parts with ``numbers`` ``(parts, numbers, N)``, which cover ``classes``.

    ``widths`` are their numbers of classes. If classes are left over, or part ``rank`` (unless -1)
    has another first class than the rows, the rows are NaN.
    """
    if total_weight is not None:
        total_weight = total_weight.to(numbers.dtype)
    place = (classes.start, classes.stop, rank, rows.first)
    of_rows, values = operators(numbers).join_parts(
        numbers, widths, rows.target, total_weight, *place, *rows.of_parts
    )
    return Whole(of_rows, values, total_weight)


class Found(NamedTuple):
    """The numbers that backward needs besides the logits."""

    numbers: Tensor
    total_weight: Tensor | None
    totals: Tensor | None
    """For a mean: the sums over rows of :class:`Whole`'s values, in float64."""


def finished(
    rows: Rows, parts: list[Tensor], width: int, classes: int
) -> tuple[Tensor, Tensor | None, Found]:
    """Return losses, log-sum-exps and what backward needs, from parts of ``width`` classes."""
    shard = rows.shard
    if shard is not None and len(parts) == 1:
        whole = shard.exchange(rows, parts[0])
    else:
        widths = torch.full((len(parts),), width, dtype=torch.int64, device=parts[0].device)
        of_rank = slice(rows.first, rows.first + classes)
        whole = join(rows, torch.stack(parts), widths, of_rank, rows.total_weight)
        if shard is not None:
            whole = shard.exchange(rows, whole.numbers)
    numbers, values, total_weight = whole
    shown = numbers[1] / rows.settings.divisor + numbers[2] if rows.with_log_sums else None
    found = Found(numbers, total_weight, None)
    if rows.settings.entropy:
        return values, shown, found
    if rows.reduction == "none":
        return values[0], shown, found
    totals = values.sum(1, dtype=torch.float64)
    if rows.reduction == "sum":
        return totals[0].to(values.dtype), shown, found
    return (totals[0] / totals[1]).to(values.dtype), shown, found._replace(totals=totals)


@dataclass
class Part:
    """The logits ``(N, c)`` of the classes from ``first``."""

    rows: Rows
    logits: Tensor
    first: int

    @cached_property
    def number(self) -> Tensor:
        """The position of each row's class, or any if it is in another part."""
        number = self.rows.target.clamp(self.first, self.first + self.logits.shape[1] - 1)
        return number - self.first if self.first else number

    @property
    def weight(self) -> Tensor | None:
        """The weights of these classes."""
        if self.rows.class_weight is None:
            return None
        start = self.first - self.rows.first
        weight = self.rows.class_weight[start : start + self.logits.shape[1]]
        return weight.to(widened(self.logits.dtype)).contiguous()

    def numbers(self) -> Tensor:
        """Return this part's numbers; see csrc/parts/kernels.h."""
        settings, weight = self.rows.settings, self.weight
        if self.logits.numel() == 0:
            count = 3 + settings.entropy + bool(settings.label_smoothing) + (weight is not None)
            dtype = widened(self.logits.dtype)
            nothing = self.logits.new_zeros((count, len(self.logits)), dtype=dtype)
            nothing[1], nothing[2] = torch.finfo(dtype).min, -torch.inf
            return nothing
        found = [part_numbers(self.logits, self.number, settings)]
        if settings.label_smoothing:
            found.append(weighed_logits(self.logits, weight, settings).unsqueeze(0))
        if weight is not None:
            found.append(weight[self.number].unsqueeze(0))
        return torch.cat(found) if len(found) > 1 else found[0]

    def gradient(self, found: Found, incoming: Tensor) -> Tensor:
        """Return the gradient of these logits, in their dtype."""
        of_rows = (self.rows.target, found.numbers, found.totals)
        of_classes = (self.weight, found.total_weight, self.first)
        gradient: Tensor = operators(incoming).part_gradient(
            incoming, self.logits, *of_rows, *of_classes, *self.rows.of_parts
        )
        return gradient


def scaled(
    rows: Rows, incoming: Tensor, found: Found, dtype: torch.dtype
) -> tuple[Tensor, Tensor | None]:
    """Return grad_output over powers of two per row, for float16's range, and these powers."""
    if dtype != torch.float16:
        return incoming, None
    of_rows = incoming.abs()
    of_rows = of_rows.amax(0) if of_rows.dim() > 1 else of_rows.expand(len(rows.target))
    if found.totals is not None:
        _, weight, counted = found.totals.to(incoming.dtype)
        of_rows = torch.where(counted == 0, 0.0, of_rows / weight)
    if rows.weigh_apart(dtype):
        of_rows = of_rows * found.numbers[-1]
    if rows.ignored is not None:
        of_rows = of_rows.masked_fill(rows.ignored, 0.0)
    powers = products.power_of(of_rows)
    return incoming / powers, powers.masked_fill(of_rows == 0, 0.0)
