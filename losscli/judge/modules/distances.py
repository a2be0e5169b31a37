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

PART_ELEMENTS = 2**24
"""Elements that are measured at a time: in float64 each takes 60 bytes or so."""


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
    largest = own_most = off = 0.0
    place = 0
    parts = zip(*(each.flatten().split(PART_ELEMENTS) for each in (got, truth, own)), strict=True)
    for number, (ours, exact, theirs) in enumerate(parts):
        if not ours.numel():
            continue
        due = exact.double()
        in_range = due.to(got.dtype).double().isfinite()
        error, own_error = (_errors(each, due, got.dtype) for each in (ours, theirs))
        judged = own_error.isfinite()
        largest = max(largest, float(due.abs().where(in_range, 0.0).max()))
        own_most = max(own_most, float(own_error.where(judged, 0.0).max()))
        worst, where = error.where(judged, 0.0).max(0)
        if float(worst) > off:
            off, place = float(worst), int(where) + number * PART_ELEMENTS
    limits = torch.finfo(got.dtype)
    accumulator = torch.float64 if got.dtype == torch.float64 else torch.float32
    spacing = max(limits.eps * largest, limits.smallest_normal)
    allowed = max(ELEMENT_ULP * spacing, REFERENCE_FACTOR * own_most)
    if terms > 1:
        summed = math.sqrt(min(terms, TILE_ELEMENTS)) * unit_roundoff(accumulator) * largest
        allowed = max(allowed, summed)
    wrong = ""
    if off > allowed:
        index = [int(i) for i in torch.unravel_index(torch.tensor(place), got.shape)]
        at = f" at {index}" if index else ""
        expected, given = (float(each.flatten()[place]) for each in (truth, got))
        pair = f"expected {expected:.9g}, got {given:.9g}{at}"
        wrong = f"{pair}, off by {off:.3g}; allowed: {allowed:.3g}"
    return Distance(off / spacing, own_most / spacing, wrong)


def _errors(got: Tensor, due: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the error of each element; infinite where NaN or an infinity disagrees."""
    value = got.double()
    error = (value - due).abs().nan_to_num(nan=math.inf)
    return error.masked_fill(agree_beyond_range(value, due, dtype), 0.0)
