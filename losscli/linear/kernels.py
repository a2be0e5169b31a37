"""Row kernels applied to logits: losses, log-sum-exps and gradients."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from losscli.losses.formulas import widened

from . import products


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
    logits: Tensor, target: Tensor, weight: Tensor | None, settings: Settings, reduction: str
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
    call: Callable[..., Tensor] = torch.ops.losscli.token_log_probs
    # Further values: the largest logit, the log-sum-exp relative to it, and any entropy.
    rest = ("none", settings.divisor, 2.0 + settings.entropy)
    if not settings.softcap:
        return call(logits, number, *rest)
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
    dtype = widened(logits.dtype)
    # 16 MiB of logits fit an H100's L2 cache with others.
    for rows in products.parts(len(logits), max(2**24 // max(logits.shape[1] * 4, 1), 1)):
        bent = logits[rows].to(dtype) / (settings.temperature * settings.softcap)
        yield rows, bent.tanh_().mul_(settings.softcap)
