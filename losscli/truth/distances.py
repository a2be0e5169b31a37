"""Errors against the oracle, in units in the last place (ULP) and as norms.

An element's error is ``|result - truth| / ulp(scale)`` in float64, where ``ulp`` is the spacing of
the result's dtype at ``scale``, at least its smallest subnormal. The scale is the magnitude of the
truth; for a sum, the sum of its terms' magnitudes, so that cancellation is no error; for a loss
with known terms, the largest term. A zero float32 gradient is off by at least 2^23 ULP.

NaN matches NaN, and infinity the same infinity or a truth out of range. Any other NaN or infinity
is infinitely wrong. Signs of zeros do not matter.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from losscli.truth.blocks import Block, blocks_of

Forgives = Callable[["Truth", Tensor], Tensor]
"""Tells at which elements of a truth any value is right, from those of the result."""


@dataclass(frozen=True)
class Truth:
    """The correct value of a block of a result."""

    block: Block
    """The block's place in the shape of the result."""
    value: Tensor
    """float64."""
    magnitude: Tensor | None = None
    """If terms cancel, the sum of their magnitudes or the largest."""
    rounding: Tensor | None = None
    """Further error of an element, from roundings of what it is computed from."""
    once_rounded: float | None = None
    """The relative error, by norm, if what the result is computed from is rounded once."""

    @property
    def scale(self) -> Tensor:
        """The scale of errors; its sign does not matter."""
        return self.value if self.magnitude is None else self.magnitude


@dataclass(frozen=True)
class Errors:
    """The error of one result."""

    ulp: float = 0.0
    """Largest over the elements; infinite if NaN or infinity disagrees."""
    absolute: float = 0.0
    """Largest over the elements."""
    relative: float = 0.0
    """Norm of the difference over the norm of the scale."""
    index: tuple[int, ...] = ()
    """Where ``ulp`` was found, with the values there:"""
    expected: float = math.nan
    got: float = math.nan
    scale: float = math.nan
    mismatches: Mapping[str, int] = field(default_factory=dict)
    """Elements off by more than 1 ULP, by difference: ``nan``, ``inf`` or ``zero`` on one side
    only, or ``sign``. One element may count twice."""


def compare(result: Tensor, truths: Iterable[Truth]) -> Errors:
    """Compare a result with the truth, block by block."""
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
            at = zip(truth.block, index_of(place, got.shape), strict=True)
            worst = Errors(
                ulp=largest,
                index=tuple(cut.start + inside for cut, inside in at),
                expected=float(truth.value.flatten()[place]),
                got=float(got.flatten()[place]),
                scale=abs(float(truth.scale.flatten()[place])),
            )
        if largest > 1.0:
            off = ulps > 1.0
            rounded = truth.value[off].to(result.dtype).double()
            mismatches.update(_count_mismatches(got[off], rounded))
        absolute = max(absolute, float(error.max()))
        squared_error += _squared_norm(error)
        squared_scale += _squared_norm(scale)
    relative = math.sqrt(squared_error)
    if relative:  # nothing over nothing is 0
        relative = relative / math.sqrt(squared_scale) if squared_scale > 0 else math.inf
    least = max(worst.ulp, 0.0)
    return replace(worst, ulp=least, absolute=absolute, relative=relative, mismatches=mismatches)


def truths_of(value: Tensor, scale: Tensor | None = None) -> Iterator[Truth]:
    """Yield the truth of a whole result, block by block."""
    for block in blocks_of(value):
        yield Truth(block, value[block].double(), None if scale is None else scale[block])


def forgiving(truths: Iterable[Truth], result: Tensor, forgives: Forgives) -> Iterator[Truth]:
    """Yield truths with the result's own values wherever any value is right."""
    for truth in truths:
        got = result.detach()[truth.block].double()
        yield replace(truth, value=torch.where(forgives(truth, got), got, truth.value))


def distance(got: Tensor, truth: Truth) -> Tensor:
    """Return each element's error, less its further allowed error."""
    error = (got - truth.value).abs_()
    return error if truth.rounding is None else error.sub_(truth.rounding).clamp_(min=0.0)


def errors_of(got: Tensor, truth: Truth, dtype: torch.dtype) -> Tensor:
    """Return each element's distance, infinite for a NaN or infinity that is wrong."""
    error = distance(got, truth).nan_to_num(nan=math.inf, posinf=math.inf)
    return error.masked_fill(agree_beyond_range(got, truth.value, dtype), 0.0)


def ulp(scale: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the spacing of ``dtype`` at each float64 value."""
    limits = torch.finfo(dtype)
    exponents = scale.view(torch.int64) & 0x7FF0_0000_0000_0000
    return exponents.view(torch.float64).clamp_(min=limits.tiny).mul_(limits.eps)


def first_difference(got: Tensor, due: Tensor, digits: int = 9, exactly: str = "") -> str:
    """Describe the first difference, if any; signs of zeros do not matter."""
    off = (got.detach() != due).flatten()
    if not off.any():
        return ""
    number = int(off.int().argmax())
    want, found = (f"{float(each.flatten()[number]):.{digits}g}" for each in (due, got))
    return f"expected {want}{exactly}, got {found} at {[*index_of(number, due.shape)]}"


def index_of(number: int, shape: Sequence[int]) -> tuple[int, ...]:
    """Return an element's index from its flat position, faster than PyTorch does."""
    return tuple(map(int, np.unravel_index(number, shape)))


def _squared_norm(values: Tensor) -> float:
    flat = values.flatten()
    return float(torch.dot(flat, flat))


def agree_beyond_range(got: Tensor, expected: Tensor, dtype: torch.dtype) -> Tensor:
    """Tell where both are NaN, or the infinity to which a dtype rounds the truth."""
    rounded = expected.to(dtype).double()
    return (got.isinf() & (got == rounded)) | (got.isnan() & rounded.isnan())


def _count_mismatches(got: Tensor, expected: Tensor) -> dict[str, int]:
    counts = {
        "nan": got.isnan() != expected.isnan(),
        "inf": got.isinf() != expected.isinf(),
        "sign": got.sign() * expected.sign() < 0,
        "zero": (got == 0) != (expected == 0),
    }
    return {name: int(differs.sum()) for name, differs in counts.items()}


def misfit(result: Tensor | None, shape: torch.Size, like: Tensor, dtype: torch.dtype) -> str:
    """Describe a wrong shape, dtype or device; empty if there is none."""
    if result is None:
        return "expected a tensor, got None"
    due = (tuple(shape), dtype, like.device)
    given = (tuple(result.shape), result.dtype, result.device)
    if due == given:
        return ""
    return "expected shape {}, {} on {}, got {}, {} on {}".format(*due, *given)
