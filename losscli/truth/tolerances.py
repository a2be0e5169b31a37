"""The tolerances. Every figure is derived; none was tuned until the tests passed.

Notation: ``u`` is half the spacing of a dtype at 1, the largest relative error of one rounding;
``u_out`` is that of the result's dtype, ``u_acc`` that of the accumulator: float32, or float64 for
float64. The absolute tolerance is 0 everywhere.

**Elements** (reduction ``none``, and the gradient of an operand that is not broadcast). A loss or
gradient element comes of a handful of operations, each off by at most ``u``, that is 0.5 to 1 ULP.
The longest chain, that of the 16-bit formulas that round after each step (difference, square or
scale, incoming gradient over N, product), has four: 4 ULP. Nothing is granted for cancellation:
``x - y`` is exact where it is small beside its operands, and so is ``margin - x * y`` for targets
of -1 and 1 (Sterbenz), so even the formula without a fused multiply-add meets the bar.

**Elements whose terms cancel.** Where an element is a difference of terms that are rounded
themselves, ``exp(x) - y`` say, each term is off by the same handful of roundings, of its own
magnitude, and so is their difference. So an element of a loss whose spec names its terms
(``LossSpec.terms``) may be off by 4 ULP of the largest of them, or of itself where it is larger.
Its sums are measured at the sum of these magnitudes.

**Rows.** A row's loss is the log of a sum of exponentials (``lse``) less its logits. Each of these
is a term, and so is 1: the sum is rounded beside it, and its logarithm moves as far. A gradient
element is ``w * p - q``, of terms ``w * p`` and ``q``. As ``p = exp(x - lse)`` is off by what its
exponent is off by, ``abs(x - lse)`` ULP of ``p`` are added for the rounding of that, and 2
``abs(x)`` where a temperature or a cap computes ``x``. What is left is a handful of roundings:
4 ULP of the largest term. The sum of C exponentials is added up by many lanes; one lane alone, or
one tile, would lose ``sqrt(C)`` roundings, at most ``sqrt(16384) = 128``: 64 ULP. Between the two
bars: WARN. In float64 what the oracle's own four roundings and its own sum may lose passes as well.
16-bit results are those of float32 rounded once: 1 ULP, or the wider bar of float32 at the largest
term.

**Rows of two sets of logits.** A divergence is a sum of ``w * v``, with probabilities ``w`` and
values ``v`` that are differences of logarithms. The terms of ``v`` are those of its logarithms, and
the sum is measured at that of ``w`` times the largest of them, plus what the rounding of its
exponent adds to ``w``, times ``v`` itself. The derivative is ``w * (v - sum of w * v)``, measured
likewise: at ``w`` times the largest term of ``v`` and of the sum. A derivative ``p - q`` is that of
two probabilities of which neither is given: each is off by its own exponent and its own handful of
roundings, so it is measured at the sum of the two. The sign of ``p - q`` is undecided where the
difference is smaller than both errors; an element that it moves, and by the expected sign the rest
of its row, may be off by as much more. **Rows of vectors**: a cosine is
measured at 1, or at the margin, and its gradient ``y / (a * b) - c * x / a^2`` at the larger of the
two, with two roundings more, of the root of a length and of the quotient by it; the difference of
two distances at the larger one, where a difference of numbers to which epsilon is added is measured
before it is added, and the gradient at the larger of the two unit vectors. **Rows of bins** are
logits that are rounded themselves: each moves its own exponent, and their log-sum-exp by as much as
they do in its mean. The gradient of what is inside of one bin is a product of two, that of the bin
and that of the bin's own log-sum-exp, of which each is off by its own handful.
losscli/losses/rows/terms.py and the files of the losses hold these terms.

**The value of mean and sum.** A correctly rounded result is off by 0.5 ULP. A kernel that sums
tiles of 16,384 elements in float32 and carries the tiles in wider precision adds a random walk of
``sqrt(16384) = 128`` roundings at worst: the bound ``u_out + 128 * u_acc``, relative to the sum of
magnitudes. Beyond it the accumulator is not what it has to be: FAIL. Within 2 ULP, or within four
times the error of PyTorch's own formula on the same inputs: PASS. Between the two: WARN, with the
factor by which the result is less accurate than PyTorch's. (2 ULP always pass, also in 16 bits,
where they exceed the bound.)

**The gradient of a broadcast operand** is a sum of terms of both signs in the operand's dtype. It
is measured at the sum of their magnitudes: within 4 ULP PASS, beyond the bound of sums FAIL,
between the two WARN. That of an operand which all rows share is composed of PyTorch's operators,
which add up row after row: ``sqrt(rows)`` roundings more.

In float64 there is no wider type to carry tiles in, and the oracle rounds as well: a sum passes
within the bound, and nothing warns.

**Losses of hidden states.** Their logits are a product that is rounded to the dtype of the hidden
states, and added up in float32: a logit ``x`` moves by ``e``, ``u_out * abs(x)`` and ``sqrt(D)``
times ``u_acc`` times the sum of the magnitudes of its D products. What that does to results follows
exactly: ``lse`` moves by at most ``L = lse(x + e) - lse(x)``, a probability to at most ``exp(x -
lse + e + L)``, and down by no more than those of the other classes may go up. An element of the
gradient of a hidden state is the sum over the classes of ``g * w``, where the gradient ``g`` of a
logit is off by what its probability moves by, by its own rounding to the dtype and by that of its
product with the incoming gradient; that of the weight is a sum over the rows of ``g * h``. So each
element may be off by the sum of the products of these magnitudes, what the sums in float32 may lose
among them, and by 4 ULP of itself. These bounds hold however roundings fall, and are seldom
reached: many roundings of either sign cancel. So in 16 bits each gradient of 512 elements and more
is judged as a whole as well: its error, by its norm, may be twice that of one product, with sums in
float64, of logits and their gradient that are rounded once. Twice, because implementations round
the product with the incoming gradient as well (a factor of ``sqrt(2)``), and other values. Sums
that are in 16 bits themselves, as those of a weight's gradient that is added up in parts, are
beyond it. Up to four times others get a warning.

**What PyTorch's own formula gets wrong as well**, on the same inputs and in the same elements, by
as much or by more, is a warning: no worse than torch (losscli/truth/excuse.py). Not of losscli's
own kernels, which are held to the oracle alone. Files that are judged may be as wrong in other
elements of the size, for they may take the steps of a formula in another order.

A tolerance that a config gives for a case by name, in ULP, replaces a bar only where it is wider.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from losscli.reasons import Code
from losscli.runs.records import FAIL, PASS, WARN, VerifyStatus
from losscli.truth.distances import Errors

ELEMENT_ULP = 4.0
ONCE_ROUNDED_ULP = 1.0
VALUE_ULP = 2.0
REFERENCE_FACTOR = 4.0
ONCE_ROUNDED_FACTOR = 2.0
TILE_ELEMENTS = 16384


@dataclass(frozen=True)
class Outcome:
    """The status of a check, with the reason if it is not a pass."""

    status: VerifyStatus
    reason: str = ""
    code: Code = Code.NONE
    """The code of the reason, where the status alone is not enough."""


def unit_roundoff(dtype: torch.dtype) -> float:
    """Return ``u``: the largest relative error of one rounding."""
    return torch.finfo(dtype).eps / 2


def sum_bound(dtype: torch.dtype) -> float:
    """Return the relative error that a sum in tiles may have."""
    accumulator = torch.float64 if dtype == torch.float64 else torch.float32
    return unit_roundoff(dtype) + math.sqrt(TILE_ELEMENTS) * unit_roundoff(accumulator)


def judge_elements(errors: Errors, loosened: float | None = None) -> Outcome:
    """Judge elements that are each computed from their own operands."""
    allowed = max(ELEMENT_ULP, loosened or 0.0)
    if errors.ulp <= allowed:
        return Outcome(PASS)
    of_terms = errors.scale > abs(errors.expected)
    of = f"of its largest term, {errors.scale:.3g}" if of_terms else "an element"
    return Outcome(FAIL, f"{describe(errors)}; allowed: {allowed:g} ulp {of}")


def sum_roundings(length: int) -> float:
    """Return how many roundings a sum of so many terms may be off by."""
    return math.sqrt(min(length, TILE_ELEMENTS))


def lost_in_sum(length: int) -> float:
    """Return the ULP that a sum of so many terms may lose: those of a row, or those of all rows."""
    return sum_roundings(length) / 2


def terms_share(dtype: torch.dtype, length: int, factor: float = 1.0) -> float:
    """Return what the terms of a row are multiplied by, where a result has fewer bits than they.

    So that as many ULP of a result as it may be off by are those of the terms in float32: four, and
    what the sum may lose.

    Args:
        dtype: of the result.
        length: of the row.
        factor: of the loss's own tolerance.
    """
    if dtype.itemsize >= 4:
        return 1.0
    wider = torch.finfo(torch.float32).eps / torch.finfo(dtype).eps
    return wider * (factor * ELEMENT_ULP + lost_in_sum(length)) / ONCE_ROUNDED_ULP


def judge_rows(
    errors: Errors, dtype: torch.dtype, length: int, loosened: float | None = None
) -> Outcome:
    """Judge results of rows of a length: a loss each, or gradient elements."""
    once = dtype.itemsize < 4
    bar = ONCE_ROUNDED_ULP if once else ELEMENT_ULP
    lost = 0.0 if once else lost_in_sum(length)
    passing = max(bar, loosened or 0.0) + (bar + lost if dtype == torch.float64 else 0.0)
    if errors.ulp <= passing:
        return Outcome(PASS)
    allowed = max(passing, bar + lost)
    if errors.ulp <= allowed:
        return Outcome(WARN, f"{describe(errors)}; a careful sum stays within {passing:g} ulp")
    of = f"; allowed: {allowed:.3g} ulp of its largest term, {errors.scale:.3g}"
    return Outcome(FAIL, f"{describe(errors)}{of}")


def judge_sums(errors: Errors, dtype: torch.dtype, loosened: float | None = None) -> Outcome:
    """Judge elements that are sums of terms of both signs."""
    # An error of k ULP is at least k * u relative, so this many ULP lie beyond the bound for sure.
    bound = sum_bound(dtype) / unit_roundoff(dtype)
    passing = max(bound if dtype == torch.float64 else ELEMENT_ULP, loosened or 0.0)
    allowed = max(passing, bound)
    if errors.ulp <= passing:
        return Outcome(PASS)
    if errors.ulp <= allowed:
        return Outcome(WARN, f"{describe(errors)}; a careful sum stays within {passing:g} ulp")
    return Outcome(FAIL, f"{describe(errors)}; allowed: {allowed:g} ulp of the sum of magnitudes")


def judge_as_a_whole(errors: Errors, once_rounded: float) -> Outcome:
    """Judge a gradient of 16 bits by its norm, beside one product of what is rounded once.

    ``once_rounded``: the relative error of that.
    """
    factor = errors.relative / once_rounded if once_rounded else 0.0
    if factor <= ONCE_ROUNDED_FACTOR:
        return Outcome(PASS)
    reason = (
        f"as a whole off by {errors.relative:.2g}, {factor:.3g} times one product of the rounded "
        f"gradient of the logits; allowed: {ONCE_ROUNDED_FACTOR:g} times"
    )
    return Outcome(WARN if factor <= REFERENCE_FACTOR else FAIL, reason, Code.LESS_ACCURATE)


def judge_value(
    errors: Errors, reference: Errors, dtype: torch.dtype, loosened: float | None = None
) -> Outcome:
    """Judge a mean or a sum beside PyTorch's own error on the same inputs."""
    bound = sum_bound(dtype)
    if errors.ulp <= max(VALUE_ULP, loosened or 0.0):
        return Outcome(PASS)
    if not errors.relative <= bound:
        return Outcome(FAIL, f"{describe(errors)}; allowed: {bound:.1e} relative")
    own = reference.ulp if math.isfinite(reference.ulp) else 0.0
    if errors.ulp <= REFERENCE_FACTOR * own or dtype == torch.float64:
        return Outcome(PASS)
    factor = f" by {errors.ulp / own:.3g}x" if own else ", which is exact here"
    return Outcome(WARN, f"{describe(errors)}: less accurate than torch{factor}")


def describe(errors: Errors) -> str:
    """Describe the expected and the actual value with the index."""
    digits = 9 if f"{errors.expected:.9g}" != f"{errors.got:.9g}" else 17
    where = f" at {list(errors.index)}" if errors.index else ""
    kinds = ", ".join(f"{count} {name}" for name, count in errors.mismatches.items() if count)
    kinds = kinds and f" ({kinds})"
    off = f"off by {errors.ulp:.3g} ulp" if math.isfinite(errors.ulp) else "infinitely wrong"
    return (
        f"expected {errors.expected:.{digits}g}, got {errors.got:.{digits}g}{where}, {off}{kinds}"
    )
