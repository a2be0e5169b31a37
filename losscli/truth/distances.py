"""The error of a result against the oracle, in units in the last place (ULP) and as norms.

The error of an element is ``|result - truth| / ulp(scale)`` in float64, where ``ulp`` is the
spacing of the result's dtype at ``scale``, never below its smallest subnormal, and ``scale`` is the
magnitude of the truth. Where the truth is a sum, the scale is the sum of the magnitudes of its
terms, so that terms which cancel do not make an honest sum look wrong; where the loss says what
terms an element is the difference of, it is the largest of them. A correctly rounded result is off
by at most 0.5 ULP, in every dtype; for float64 the truth itself is rounded.

Every element is measured at its own scale, so a tensor does not pass by being small: an all-zero
float32 gradient is off by 2^23 ULP or more however small the gradient.

NaN agrees with NaN, an infinity with the same infinity or with a truth beyond the dtype's range;
any other pair with a NaN, or an infinity where the truth is in range, is infinitely wrong. The
sign of a zero is not judged.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from losscli.truth.blocks import Block

_EXPONENT_BITS = 0x7FF0_0000_0000_0000
"""The bits of a float64 that leave the power of two below its magnitude."""


@dataclass(frozen=True)
class Truth:
    """The correct value of a block of a result."""

    block: Block
    """The block's place in the shape of the result."""
    value: Tensor
    """float64."""
    magnitude: Tensor | None = None
    """Where terms cancel, how large they are: the sum of the magnitudes of those that are summed,
    or, of an element, the largest term that the spec names."""
    undecided: Tensor | None = None
    """How much more an element may be off, where rounding decides the sign of a difference."""
    rounding: Tensor | None = None
    """How much more an element may be off by roundings of what it is computed from."""
    once_rounded: float | None = None
    """The relative error of the whole result, by its norm, where what it is computed from is
    rounded once; None where that is not judged."""

    @property
    def scale(self) -> Tensor:
        """The scale of errors; its sign does not matter."""
        return self.value if self.magnitude is None else self.magnitude


@dataclass(frozen=True)
class Errors:
    """The distance of one result from the truth."""

    ulp: float = 0.0
    """Largest over the elements; infinite where NaN or an infinity disagrees."""
    absolute: float = 0.0
    """Largest over the elements."""
    relative: float = 0.0
    """Norm of the difference over the norm of the scale."""
    index: tuple[int, ...] = ()
    """Where ``ulp`` was found."""
    expected: float = math.nan
    """The truth there."""
    got: float = math.nan
    """The result there."""
    scale: float = math.nan
    """What it was measured at there."""
    mismatches: Mapping[str, int] = field(default_factory=dict)
    """How many elements are off by more than 1 ULP, by what differs: ``nan``, ``inf`` or ``zero``,
    on one side only, or ``sign``. One element may count more than once."""


def compare(result: Tensor, truths: Iterable[Truth]) -> Errors:
    """Measure a result against the truth, block by block."""
    worst = Errors(ulp=-1.0)
    absolute = squared_error = squared_scale = 0.0
    mismatches: Counter[str] = Counter()
    for truth in truths:
        got = result.detach()[truth.block].double()
        if got.numel() == 0:
            continue
        error = (got - truth.value).abs_()
        scale = truth.scale
        ulps = distance(got, truth) / ulp(scale, result.dtype)
        largest = float(ulps.max())
        if not math.isfinite(largest):
            agree = agree_beyond_range(got, truth.value, result.dtype)
            error = error.masked_fill_(agree, 0.0).nan_to_num_(nan=math.inf)
            ulps = ulps.masked_fill_(agree, 0.0).nan_to_num_(nan=math.inf, posinf=math.inf)
            scale = scale.masked_fill(agree | ~scale.isfinite(), 0.0)
            largest = float(ulps.max())

        if largest > worst.ulp:
            place = int(ulps.flatten().max(0).indices)  # takes five times as long
            start = (cut.start for cut in truth.block)
            worst = Errors(
                ulp=largest,
                index=tuple(a + b for a, b in zip(start, index_of(place, got.shape), strict=True)),
                expected=float(truth.value.flatten()[place]),
                got=float(got.flatten()[place]),
                scale=abs(float(truth.scale.flatten()[place])),
            )
        if largest > 1.0:
            off = ulps > 1.0
            mismatches.update(
                _count_mismatches(got[off], truth.value[off].to(result.dtype).double())
            )
        absolute = max(absolute, float(error.max()))
        squared_error += _squared_norm(error)
        squared_scale += _squared_norm(scale)
    relative = math.sqrt(squared_error)
    if relative:  # nothing over nothing is 0
        relative = relative / math.sqrt(squared_scale) if squared_scale > 0 else math.inf
    least = max(worst.ulp, 0.0)
    return replace(worst, ulp=least, absolute=absolute, relative=relative, mismatches=mismatches)


def distance(got: Tensor, truth: Truth) -> Tensor:
    """Return how far each element is off, beyond what roundings before it may decide or move."""
    error = (got - truth.value).abs_()
    for beyond in (truth.undecided, truth.rounding):
        error = error if beyond is None else error.sub_(beyond).clamp_(min=0.0)
    return error


def ulp(scale: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the spacing of ``dtype`` at the magnitude of each float64 value."""
    limits = torch.finfo(dtype)
    powers_of_two = (scale.view(torch.int64) & _EXPONENT_BITS).view(torch.float64)
    return powers_of_two.clamp_(min=limits.tiny).mul_(limits.eps)


def first_difference(got: Tensor, due: Tensor, digits: int = 9, exactly: str = "") -> str:
    """Say where a result first differs from what is due; empty if at most in signs of zeros."""
    off = (got.detach() != due).flatten()
    if not off.any():
        return ""
    number = int(off.int().argmax())
    want, found = (f"{float(each.flatten()[number]):.{digits}g}" for each in (due, got))
    return f"expected {want}{exactly}, got {found} at {[*index_of(number, due.shape)]}"


def index_of(number: int, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the index of an element by its number in the flattened tensor.

    PyTorch's own takes as long as comparing a small tensor.
    """
    index: list[int] = []
    for extent in reversed(shape):
        number, inside = divmod(number, extent)
        index.insert(0, inside)
    return tuple(index)


def _squared_norm(values: Tensor) -> float:
    flat = values.flatten()
    return float(torch.dot(flat, flat))


def agree_beyond_range(got: Tensor, expected: Tensor, dtype: torch.dtype) -> Tensor:
    """Tell where both are NaN, or both the infinity that the truth becomes in a dtype."""
    rounded = expected.to(dtype).double()
    return (got.isinf() & (got == rounded)) | (got.isnan() & rounded.isnan())


def _count_mismatches(got: Tensor, expected: Tensor) -> dict[str, int]:
    """Count what differs in kind."""
    counts = {
        "nan": got.isnan() != expected.isnan(),
        "inf": got.isinf() != expected.isinf(),
        "sign": got.sign() * expected.sign() < 0,
        "zero": (got == 0) != (expected == 0),
    }
    return {name: int(differs.sum()) for name, differs in counts.items()}


def misfit(result: Tensor | None, shape: torch.Size, like: Tensor, dtype: torch.dtype) -> str:
    """Say how a result's shape, dtype or device differs from what is due; empty if it fits."""
    if result is None:
        return "expected a tensor, got None"
    due = (tuple(shape), dtype, like.device)
    given = (tuple(result.shape), result.dtype, result.device)
    if due == given:
        return ""
    return "expected shape {}, {} on {}, got {}, {} on {}".format(*due, *given)
