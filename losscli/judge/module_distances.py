"""The tolerance of a module that is judged against a ``Model``, whose terms are not known.

The truth is the reference in float64, on the very values that the candidate gets. A tensor passes
if no element is off by more than the largest of

- 4 ulp of the tensor's largest truth: as an element of a known loss may be, see
  ``truth/tolerances.py``, but of the tensor, because a term that cancels cannot be seen from
  outside;
- 4 times the largest error of the reference itself, run in the candidate's dtype;
- for the result alone: ``sqrt(min(n, 16384))`` roundings of the accumulator, relative to the
  largest truth, where n elements of an argument make one of the result: a sum in tiles, of which
  the order is the candidate's own.

NaN agrees with NaN, an infinity with the same infinity or with a truth beyond the range of the
dtype. Where the reference in the candidate's dtype disagrees with the truth in this way, the
element is not judged.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from losscli.truth.distances import agree_beyond_range
from losscli.truth.tolerances import (
    ELEMENT_ULP,
    REFERENCE_FACTOR,
    TILE_ELEMENTS,
    unit_roundoff,
)


@dataclass(frozen=True)
class Distance:
    """How far a tensor is from the truth."""

    ulp: float
    """The largest error, in ulp of the tensor's largest truth; infinite where NaN disagrees."""
    reference_ulp: float
    """The error of the reference in the same dtype."""
    wrong: str = ""
    """What was expected and given at the worst element, where it is beyond the tolerance."""


def distance(got: Tensor, truth: Tensor, own: Tensor, terms: int = 1) -> Distance:
    """Measure a tensor.

    Args:
        got: of the candidate.
        truth: of the reference in float64, of the same shape.
        own: of the reference in the candidate's dtype.
        terms: elements of an argument that make one of the result.
    """
    if not got.numel():
        return Distance(0.0, 0.0)
    dtype, due = got.dtype, truth.double()
    in_range = due.to(dtype).double().isfinite()
    largest = float(due.abs().where(in_range, 0.0).max())
    error, own_error = (_errors(each, due, dtype) for each in (got, own))
    judged = own_error.isfinite()
    error = error.where(judged, 0.0)
    own_most = float(own_error.where(judged, 0.0).max())
    accumulator = torch.float64 if dtype == torch.float64 else torch.float32
    spacing = max(torch.finfo(dtype).eps * largest, torch.finfo(dtype).smallest_normal)
    summed = math.sqrt(min(terms, TILE_ELEMENTS)) * unit_roundoff(accumulator) * largest
    allowed = max(ELEMENT_ULP * spacing, REFERENCE_FACTOR * own_most, summed if terms > 1 else 0.0)
    worst, place = error.flatten().max(0)
    off = float(worst)
    wrong = ""
    if off > allowed:
        index = [int(i) for i in torch.unravel_index(place, error.shape)]
        where = f" at {index}" if index else ""
        pair = f"expected {float(due.flatten()[place]):.9g}, got {float(got.flatten()[place]):.9g}"
        wrong = f"{pair}{where}, off by {off:.3g}; allowed: {allowed:.3g}"
    return Distance(off / spacing, own_most / spacing, wrong)


def _errors(got: Tensor, due: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the error of each element; infinite where NaN or an infinity disagrees."""
    value = got.double()
    error = (value - due).abs().nan_to_num(nan=math.inf)
    return error.masked_fill(agree_beyond_range(value, due, dtype), 0.0)
