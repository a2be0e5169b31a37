"""The tolerances. Every number is derived; none was tuned to pass tests.

Notation: ``u`` is half a dtype's spacing at 1, the largest relative error of one rounding;
``u_out`` is that of the result's dtype, ``u_acc`` that of the accumulator (float32, or float64 for
float64). The absolute tolerance is always 0.

**Elements** (reduction ``none``, and gradients of operands that are not broadcast). Each operation
is off by at most ``u``, which is 0.5 to 1 ULP. The longest chain, in 16-bit formulas that round
after each step (difference, square or scale, grad_output over N, product), has four: 4 ULP. A small
``x - y`` is exact, and so is ``margin - x * y`` for targets of -1 and 1 (Sterbenz).

**Elements whose terms cancel.** Each term of a difference such as ``exp(x) - y`` is off by a few
roundings. With named terms (``LossSpec.terms``) an element may be off by 4 ULP of the largest term,
or of itself if larger, and a sum by 4 ULP of the sum of these magnitudes.

**Rows.** The terms of a row's loss are its log-sum-exp (``lse``), its logits and 1, relative to
which the sum is rounded; those of a gradient element are ``w * p`` and ``q``. As ``p = exp(x -
lse)`` inherits its exponent's error, ``abs(x - lse)`` ULP of ``p`` are added, and 2 ``abs(x)`` if a
temperature or softcap computes ``x``. The other roundings are 4 ULP of the largest term. A single
lane that adds up the C exponentials would lose ``sqrt(C)`` roundings, at most ``sqrt(16384) =
128``: 64 ULP. Between the two bounds: WARN. In float64 the oracle's own roundings and sum pass
too. 16-bit results are float32 results rounded once: 1 ULP, or float32's bound at the largest term.

**Rows of two sets of logits.** A divergence is a sum of ``w * v``, probabilities times differences
of logarithms. Its scale is ``w`` times the largest term of ``v``, plus ``v`` times what the
rounding of its exponent adds to ``w``; that of its derivative ``w * (v - sum of w * v)`` likewise,
with the sum among the terms; that of ``p - q`` is the sum of both. The sign of ``p - q`` is
undecided within both errors; elements that it moves, directly or through the row's expected sign,
may be off by as much more. **Rows of vectors**: the scale of a cosine is 1 or the margin; that of
its gradient ``y / (a * b) - c * x / a^2`` is the larger term, with two more roundings. A difference
of distances has the larger one, before epsilon is added, and its gradient the larger unit vector.
**Rows of bins** are rounded logits: each moves its own exponent and, in the mean, the log-sum-exp.
The gradient inside a bin is a product of the bin's and its own log-sum-exp's. These terms are in
losscli/losses/rows/terms.py and the losses' files.

The derivative of two sets of logits takes two roundings more than a softmax times grad_output: of
the difference ``v - sum of w * v`` and of its product with ``w``. (Among 16,411 rows of 3 classes
losscli's kernels are off by up to 5.8 ULP on a GPU, PyTorch's formula by 5.4 on a CPU.) A single
lane's 64 ULP are added to whatever a loss's own roundings are.

**Mean and sum.** A correctly rounded result is off by 0.5 ULP. A kernel that sums tiles of 16,384
elements in float32 and the tiles in wider precision adds a random walk of 128 roundings: the bound
``u_out + 128 * u_acc``, relative to the sum of magnitudes. Beyond it: FAIL. Within 2 ULP (also in
16 bits, where they exceed the bound), or four times the error of PyTorch's formula on the same
inputs: PASS. Between: WARN, with the factor relative to PyTorch. In float64 there is no wider
accumulator, and the oracle rounds too: a sum passes within the bound, for n terms one after the
other ``u_out + sqrt(n) * u_acc`` if that is more.

**The gradient of a broadcast operand** is a sum of terms of both signs, measured at the sum of
magnitudes: within 4 ULP PASS, beyond the bound of sums FAIL, between WARN, or PASS in float64. For
a shared operand PyTorch adds row after row: ``sqrt(rows)`` more roundings.

**Fused linear losses.** A logit ``x``, accumulated in float32 and rounded to the hidden states'
dtype, moves by ``e``: ``u_out * abs(x)`` plus ``sqrt(D) * u_acc`` times the sum of the magnitudes
of its D products. Then ``lse`` moves by at most ``L = lse(x + e) - lse(x)``, and a probability up
to ``exp(x - lse + e + L)``, and down by no more than other classes' may go up. A hidden state's
gradient is a sum over classes of ``g * w``, the weight's one over rows of ``g * h``, where the
logit's gradient ``g`` is off by its probability's movement, its own rounding and that of its
product with grad_output. Each element may be off by the sum of these products, by 4 ULP of itself,
and by ``sqrt(n)`` roundings of the sum of magnitudes, since a matrix product may add its n terms up
in one float32 accumulator. That also loses each term of less than half a spacing of the sum so far.
Over classes these add up, as the weights of improbable classes all point away from the hidden
state: with 50,257 classes of normal logits to four times that random walk. So each ``g`` below
``u_acc`` times the row's sum of ``abs(g)`` may be missing. Over some thousand tokens such terms are
less than the walk. Roundings usually cancel, so in 16 bits each gradient of at least 512 elements
is judged by norm too: its error may be twice that of one product, summed in float64, of
once-rounded logits and gradients. The factor 2 covers the product with grad_output (``sqrt(2)``)
and other values; sums kept in 16 bits exceed it. Third-party kernels get a warning up to a factor
of 4.

losscli/truth/excuse.py has the errors that PyTorch's formula shares. A case's tolerance in a
config, in ULP, replaces a bound only if it is wider.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from losscli.cases.case import Case
from losscli.implementations.local import Operands
from losscli.losses import LOSS
from losscli.losses.formulas import widened
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
    """The status of a check, with the reason unless it passes."""

    status: VerifyStatus
    reason: str = ""
    code: Code = Code.NONE
    """The code of the reason, if the status is not enough."""


def unit_roundoff(dtype: torch.dtype) -> float:
    """Return ``u``: the largest relative error of one rounding."""
    return torch.finfo(dtype).eps / 2


def sum_bound(dtype: torch.dtype, length: int = TILE_ELEMENTS) -> float:
    """Return the allowed relative error of a sum of ``length`` terms."""
    terms = max(length, TILE_ELEMENTS) if dtype == torch.float64 else TILE_ELEMENTS
    return unit_roundoff(dtype) + math.sqrt(terms) * unit_roundoff(widened(dtype))


def judge_elements(errors: Errors, loosened: float | None = None) -> Outcome:
    """Judge independent elements."""
    allowed = max(ELEMENT_ULP, loosened or 0.0)
    of_terms = errors.scale > abs(errors.expected)
    of = f"of its largest term, {errors.scale:.3g}" if of_terms else "per element"
    return _judged(errors, allowed, allowed, f"{allowed:g} ulp {of}")


def sum_roundings(length: int) -> float:
    """Return the roundings that a sum of ``length`` terms may lose."""
    return math.sqrt(min(length, TILE_ELEMENTS))


def product_roundings(length: int) -> float:
    """Return the roundings of a matrix product, which may add all terms up in one accumulator."""
    return math.sqrt(length)


def lost_in_sum(length: int) -> float:
    """Return the ULP that a sum over a row, or over all rows, may lose."""
    return sum_roundings(length) / 2


def terms_share(dtype: torch.dtype, length: int, factor: float = 1.0) -> float:
    """Return the factor of a row's terms for a result of fewer bits than float32."""
    if dtype.itemsize >= 4:
        return 1.0
    wider = torch.finfo(torch.float32).eps / torch.finfo(dtype).eps
    return wider * (factor * ELEMENT_ULP + lost_in_sum(length)) / ONCE_ROUNDED_ULP


def judge_rows(
    errors: Errors,
    dtype: torch.dtype,
    length: int,
    loosened: float | None = None,
    *,
    factor: float = 1.0,
) -> Outcome:
    """Judge losses or gradient elements of rows, whose roundings are ``factor`` times four."""
    once = dtype.itemsize < 4
    bar = ONCE_ROUNDED_ULP if once else factor * ELEMENT_ULP
    lost = 0.0 if once else lost_in_sum(length)
    passing = max(bar, loosened or 0.0) + (bar + lost if dtype == torch.float64 else 0.0)
    allowed = max(passing, bar + lost)
    text = f"{allowed:.3g} ulp of its largest term, {errors.scale:.3g}"
    return _judged(errors, passing, allowed, text)


def judge_sums(errors: Errors, dtype: torch.dtype, loosened: float | None = None) -> Outcome:
    """Judge sums of terms of both signs."""
    # An error of k ULP is at least k * u relative, so this many ULP exceed the bound.
    bound = sum_bound(dtype) / unit_roundoff(dtype)
    passing = max(bound if dtype == torch.float64 else ELEMENT_ULP, loosened or 0.0)
    allowed = max(passing, bound)
    return _judged(errors, passing, allowed, f"{allowed:g} ulp of the sum of magnitudes")


def _judged(errors: Errors, passing: float, allowed: float, text: str) -> Outcome:
    if errors.ulp <= passing:
        return Outcome(PASS)
    if errors.ulp <= allowed:
        return Outcome(WARN, f"{describe(errors)}; a careful sum stays within {passing:g} ulp")
    return Outcome(FAIL, f"{describe(errors)}; allowed: {text}")


def judge_as_a_whole(errors: Errors, once_rounded: float) -> Outcome:
    """Judge a 16-bit gradient by its norm, relative to that of a ``once_rounded`` product."""
    factor = errors.relative / once_rounded if once_rounded else 0.0
    if factor <= ONCE_ROUNDED_FACTOR:
        return Outcome(PASS)
    product = "one product of the rounded gradient of the logits"
    off = f"as a whole off by {errors.relative:.2g}, {factor:.3g} times {product}"
    reason = f"{off}; allowed: {ONCE_ROUNDED_FACTOR:g} times"
    return Outcome(WARN if factor <= REFERENCE_FACTOR else FAIL, reason, Code.LESS_ACCURATE)


def judge_value(
    errors: Errors,
    reference: Errors,
    dtype: torch.dtype,
    loosened: float | None = None,
    *,
    length: int = TILE_ELEMENTS,
) -> Outcome:
    """Judge a mean or sum of ``length`` terms, relative to PyTorch's own error."""
    bound = sum_bound(dtype, length)
    if errors.ulp <= max(VALUE_ULP, loosened or 0.0):
        return Outcome(PASS)
    if not errors.relative <= bound:
        return Outcome(FAIL, f"{describe(errors)}; allowed: {bound:.1e} relative")
    own = reference.ulp if math.isfinite(reference.ulp) else 0.0
    if errors.ulp <= REFERENCE_FACTOR * own or dtype == torch.float64:
        return Outcome(PASS)
    factor = f" by {errors.ulp / own:.3g}x" if own else ", which is exact here"
    return Outcome(WARN, f"{describe(errors)}: less accurate than torch{factor}")


def judge_model(errors: Errors, own: Errors, dtype: torch.dtype, terms: int) -> Outcome:
    """Judge a tensor of a Model's results that sum so many ``terms``, by the reference's error."""
    allowed = max(ELEMENT_ULP, REFERENCE_FACTOR * own.ulp if math.isfinite(own.ulp) else 0.0)
    if dtype == torch.float64:  # the truth is rounded as well
        allowed = max(allowed, 2 * ELEMENT_ULP + lost_in_sum(TILE_ELEMENTS))
    if terms > 1:
        lost = sum_roundings(terms) * unit_roundoff(widened(dtype))
        allowed = max(allowed, lost / torch.finfo(dtype).eps)
    return _judged(errors, allowed, allowed, f"{allowed:.3g} ulp of the largest")


def describe(errors: Errors) -> str:
    """Describe expected and actual value with the index."""
    digits = 9 if f"{errors.expected:.9g}" != f"{errors.got:.9g}" else 17
    where = f" at {list(errors.index)}" if errors.index else ""
    kinds = ", ".join(f"{count} {name}" for name, count in errors.mismatches.items() if count)
    off = f"off by {errors.ulp:.3g} ulp"
    off += f" ({kinds})" if kinds else ""
    expected, got = (f"{each:.{digits}g}" for each in (errors.expected, errors.got))
    return f"expected {expected}, got {got}{where}, {off}"


def elements(case: Case, operands: Operands) -> Tensor:
    """Return each element's reference loss."""
    return case.spec.reference(*operands.values(), reduction="none", **case.params)


def magnitudes(case: Case, operands: Operands, losses: Tensor) -> Tensor:
    """Return the scale of the losses' errors."""
    terms = largest_terms(case, LOSS, operands, losses)
    return losses if terms is None else terms


def finite(magnitudes: Tensor) -> Tensor:
    """Return magnitudes, 0 for non-finite ones, relative to which every result would pass."""
    return magnitudes.nan_to_num(nan=0.0, posinf=0.0)


def largest_terms(
    case: Case, part: str, values: Operands, elements: Tensor, times: Tensor | float = 1.0
) -> Tensor | None:
    """Return the larger of each element and ``times`` its terms; None if it has no terms.

    ``elements`` are a loss, or a derivative times grad_output.
    """
    if case.spec.terms is None:
        return None
    with torch.no_grad():
        found = case.spec.terms.of(*values.values(), **case.params).get(part)
        if found is None:
            return None
        terms = finite((found * times).abs())
        if terms.dim() > elements.dim():  # of each value of a row, whose derivatives are added up
            terms = terms.sum(0)
        return terms.fmax(elements.abs())
