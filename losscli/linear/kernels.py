"""Row kernels applied to logits: losses, log-sum-exps and gradients."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from losscli.losses.formulas import widened

from . import products

_OF_PART = 2.0
"""Further values of a part of a row: the largest logit, and the log-sum-exp relative to it. One
more is the entropy."""
_CHUNK = 16 * 2**20
"""Bytes of logits per step, which fit an H100's L2 cache with others."""


class Settings(NamedTuple):
    """The settings of a loss of logits."""

    ignore_index: int = -100
    label_smoothing: float = 0.0
    temperature: float = 1.0
    softcap: float = 0.0
    z_loss: float = 0.0
    entropy: bool = False
    """Whether each row also has its entropy; only temperature and softcap then apply."""

    @property
    def divisor(self) -> float:
        """The divisor of the logits after a softcap."""
        return 1.0 if self.softcap else self.temperature


def losses_in_place(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    settings: Settings,
    reduction: str = "none",
) -> Tensor:
    """Return cross entropy; overwrite the logits with its gradient."""
    loss: Tensor = torch.ops.losscli.cross_entropy_with_grad_(
        logits, target, weight, reduction, *map(float, settings[:5])
    )
    return loss


def part_numbers(logits: Tensor, number: Tensor, settings: Settings) -> Tensor:
    """Return the numbers of a part of the classes, ``(3, N)``, and any entropy.

    See csrc/parts/kernels.h. The logits are from before the softcap.
    """
    call = torch.ops.losscli.token_log_probs
    rest = ("none", settings.divisor, _OF_PART + settings.entropy)
    if not settings.softcap:
        found: Tensor = call(logits, number, *rest)
        return found
    parts = [call(bent, number[rows], *rest) for rows, bent in _some_bent(logits, settings)]
    return torch.cat(parts, 1)


def weighed_logits(logits: Tensor, weight: Tensor | None, settings: Settings) -> Tensor:
    """Return each row's sum of bent logits times class weights."""
    if settings.softcap:
        plain = settings._replace(softcap=0.0, temperature=1.0)
        parts = [weighed_logits(bent, weight, plain) for _, bent in _some_bent(logits, settings)]
        return torch.cat(parts)
    if weight is None:
        return logits.sum(1, dtype=widened(logits.dtype)) / settings.temperature
    found: Tensor = products.wide(logits, weight.to(logits.dtype).unsqueeze(1))
    return found.squeeze(1) / settings.temperature


def log_sums_of(logits: Tensor, settings: Settings) -> Tensor:
    """Return each row's log-sum-exp."""
    number = torch.zeros(len(logits), dtype=torch.int64, device=logits.device)
    found = part_numbers(logits, number, settings._replace(entropy=False))
    return found[1] / settings.divisor + found[2]


def _some_bent(logits: Tensor, settings: Settings) -> Iterator[tuple[slice, Tensor]]:
    """Yield slices of rows that fit a cache, with their softcapped logits in float32."""
    dtype, scale = widened(logits.dtype), settings.temperature * settings.softcap
    for rows in products.parts(len(logits), max(_CHUNK // max(logits.shape[1] * 4, 1), 1)):
        yield rows, settings.softcap * torch.tanh(logits[rows].to(dtype) / scale)


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
    first: int = 0
    """The first class whose logits and weights are here."""

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
