"""Accepts a wrong result that is no worse than PyTorch's own formula on the same inputs."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Self

import torch
from torch import Tensor

from losscli.reasons import Code
from losscli.runs.records import FAIL, WARN
from losscli.truth.distances import Errors, Truth, compare, errors_of, forgiving, ulp
from losscli.truth.tolerances import ELEMENT_ULP, Outcome

EXPONENTS = 4096
NEAR = 6
"""Powers of two that count as slightly larger."""
ENOUGH = 100
"""Wrong results that suffice to know a formula's largest error."""
LUCK = 4.0
"""How much larger errors may be than the largest of many errors of a formula."""
TWICE_AS_FAR = 2.0
"""How much further off than a formula's furthest passing result a few results may be, because
steps were reordered or added."""


def excused(
    outcome: Outcome,
    result: Tensor,
    truths: Callable[[], Iterable[Truth]],
    torchs: Iterable[Tensor | None],
    judge: Callable[[Errors], Outcome],
    *,
    noisy: bool = False,
    bar: float = ELEMENT_ULP,
) -> Outcome:
    """Turn a failure into a warning if a result of ``torchs`` is wrong in every place that failed.

    ``noisy``: accept its errors at other elements of the same size too. ``bar``: ULP up to which it
    counts as right.
    """
    for own in torchs:
        if own is None or (own.shape, own.dtype) != (result.shape, result.dtype):
            continue
        noise = _Noise.of(own, truths(), bar) if noisy else None
        lenient = forgiving(truths(), result, partial(_forgives, own, noise, bar))
        if judge(compare(result, lenient)).status != FAIL:
            return Outcome(WARN, outcome.reason, Code.SAME_ERROR_AS_PYTORCH)
    return outcome


def no_worse(error: Tensor, torchs: Tensor, wrong: Tensor, slack: Tensor) -> Tensor:
    """Tell which errors are no larger than PyTorch's, or close if PyTorch is wrong."""
    return (error <= torchs) | (wrong & (error <= torchs + slack))


@dataclass(frozen=True)
class _Noise:
    by_exponent: Tensor
    """The largest error per exponent of the truth, where PyTorch is wrong."""
    rounding: Tensor
    """The largest fraction of the bound where it is not."""

    @classmethod
    def of(cls, torchs: Tensor, truths: Iterable[Truth], bar: float) -> Self:
        """Measure the errors of PyTorch's formula.

        The largest error counts for truths of its size, slightly larger and smaller ones. For the
        smallest truths, larger ones count too until ENOUGH are wrong.
        """
        largest = torch.zeros(EXPONENTS, dtype=torch.float64, device=torchs.device)
        count, rounding = torch.zeros_like(largest), largest[0].clone()
        for truth in truths:
            error = errors_of(torchs.detach()[truth.block].double(), truth, torchs.dtype)
            slack = bar * ulp(truth.scale, torchs.dtype)
            right, finite = error <= slack, error.isfinite()
            wrong = (finite & ~right).flatten()
            places = _exponents(truth.value).flatten().expand_as(wrong)
            largest.scatter_reduce_(0, places, torch.where(wrong, error.flatten(), 0.0), "amax")
            count.scatter_add_(0, places, wrong.double())
            if error.numel():
                rounding = rounding.maximum(torch.where(right & finite, error / slack, 0.0).amax())
        largest, count = largest.cummax(0).values, count.cumsum(0)
        enough = (count < ENOUGH).sum().clamp(max=EXPONENTS - 1)
        up_to = torch.arange(NEAR, EXPONENTS + NEAR, device=torchs.device)
        up_to = up_to.clamp(max=EXPONENTS - 1).maximum(enough)
        # n uniform errors are all below 1/x of the maximum with probability x^-n, here 1e-4. In 16
        # bits more than 16 times as much would leave no digits, however few errors there are.
        most = 16.0 if torchs.dtype.itemsize == 2 else math.inf
        luck = (1e-4 ** (-1 / count[up_to].clamp(min=1))).clamp(LUCK, most)
        return cls(largest[up_to] * luck, rounding)

    def covers(self, error: Tensor, truth: Truth, slack: Tensor) -> Tensor:
        near = (error <= TWICE_AS_FAR * self.rounding * slack) & error.isfinite()
        beyond = near & (error > slack)
        if beyond.sum() > max(0.01 * beyond.numel(), 1):  # more than a few
            near = torch.zeros_like(near)
        return near | (error <= self.by_exponent[_exponents(truth.value)])


def _exponents(values: Tensor) -> Tensor:
    values = values.double().nan_to_num()
    exponents = torch.frexp(values).exponent.long() + EXPONENTS // 2
    return exponents.where(values != 0, 0).clamp(0, EXPONENTS - 1 - NEAR)


def _forgives(own: Tensor, noise: _Noise | None, bar: float, truth: Truth, got: Tensor) -> Tensor:
    """Tell where PyTorch is at least as wrong as a result."""
    torchs = errors_of(own.detach()[truth.block].double(), truth, own.dtype)
    error, one = errors_of(got, truth, own.dtype), ulp(truth.scale, own.dtype)
    excuse = no_worse(error, torchs, torchs > bar * one, ELEMENT_ULP * one)
    return excuse if noise is None else excuse | noise.covers(error, truth, bar * one)
