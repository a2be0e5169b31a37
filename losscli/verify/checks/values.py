"""Checks of the loss, of special values and of roundings."""

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import partial

import torch
from msgspec.structs import replace
from torch import Tensor

from losscli.implementations.local import Operands
from losscli.implementations.requests import Forward
from losscli.implementations.subject import Subject, bind
from losscli.losses import ELEMENT, LOSS, ROW
from losscli.reasons import Code
from losscli.runs.records import FAIL, PASS, WARN
from losscli.truth.distances import Truth, ulp
from losscli.truth.gate import to_error
from losscli.truth.model import WrongReferenceError
from losscli.truth.problem import Problem
from losscli.truth.tolerances import Outcome
from losscli.verify.checks.check import Cost, Tally, check, paths
from losscli.verify.geometry import geometry_of
from losscli.verify.geometry.geometry import of_shape


@check(
    place=10,
    facet="value",
    catches="a wrong formula, constant, parameter or axis, a sum where a mean is expected, "
    "elements left out, an accumulator that is too narrow, a wrong shape or dtype",
    advice="Check the formula, the parameters and the reduction; sum in float64, or in float32 "
    "in blocks.",
    cost=Cost.FIRST,
    pass_="forward",
    once=False,
    needs_gradient=False,
)
def value(problem: Problem, subject: Subject, tally: Tally) -> None:
    """Check the loss of a call without gradients, and of a call that also asks for a gradient.

    Fused kernels compute the latter on a separate path.
    """
    for where, wrt in (("", ()), ("when a gradient is wanted: ", problem.wrt[:1])):
        judged = problem.judge_loss(subject.send(Forward(problem.operands, wrt)))
        tally.add(*judged, where)
        tally.measure(LOSS, *judged)
    tally.reference_error = to_error(problem.reference_errors)


@check(
    place=220,
    facet="extreme_values",
    catches="values that are replaced, flushed to zero or overflow",
    advice="Propagate NaN and infinities like PyTorch; compute no square that overflows.",
    formerly=("specials",),
    cost=Cost.QUICK,
    adapt=of_shape((13, 37)),
    limits=lambda variant, _: True,
    needs_gradient=False,
)
def special_values(problem: Problem, subject: Subject, tally: Tally) -> None:
    """Check NaN, infinities and other values at the ends of a dtype's range.

    Also subnormals, negative zero, and numbers whose squares overflow (not for losses that add up
    squares). One at a time, in each operand and in all together.

    Values that PyTorch's own formula rejects are left out. Where PyTorch's gradient is NaN, any
    gradient passes, because torch.compile's differs there; the loss must be NaN.
    """
    tally.any_for_nan = True
    for name, variant in _variants(problem):
        tally.judge_variant(name, variant, variant.usual, subject.send(variant.call(variant.usual)))


def named_values(dtype: torch.dtype, squares: bool = False) -> dict[str, float]:
    """Return the values by name; ``squares``: the large one's square is in range."""
    limits = torch.finfo(dtype)
    large, power = ("just in range", 0.45) if squares else ("out of range", 0.75)
    large = f"a number whose square is {large}"
    return {
        "NaN": math.nan,
        "infinity": math.inf,
        "-infinity": -math.inf,
        large: limits.max**power,
        "a subnormal number": limits.tiny * 0.75,
        "a negative subnormal number": limits.tiny * -0.75,
        "-0": -0.0,
    }


def _variants(problem: Problem) -> Iterator[tuple[str, Problem]]:
    case, spec = problem.case, problem.case.spec
    for title, value in named_values(problem.oracle.dtype, spec.squares).items():
        operands = tuple(name for name in case.drawn if not spec.domains[name].discrete)
        chosen: dict[str, tuple[str, ...]] = {f"the {name}": (name,) for name in operands}
        if len(operands) > 1:
            together = "both" if len(problem.operands) == 2 else " and ".join(operands)
            chosen[together] = operands
        for where, planted in chosen.items():
            # What PyTorch refuses a GPU may not survive.
            refused = any(
                value < each.least or (each.refused and not each.domain.holds(value))
                for each in spec.operands
                if each.name in planted
            )
            if not refused and not geometry_of(case).overflows(value, planted):
                variant = _planted(problem, value, planted)
                try:
                    next(iter(variant.value()))
                except (RuntimeError, WrongReferenceError):  # PyTorch's own formula rejects them
                    continue
                yield f"{title} in {where}", variant


def _planted(problem: Problem, value: float, names: tuple[str, ...]) -> Problem:
    def put(values: Tensor) -> Tensor:
        values = values.clone(memory_format=torch.contiguous_format)
        row = values.reshape(-1, values.shape[-1]) if values.dim() else values.view(1, 1)
        row[7 % len(row), 19 % row.shape[1]] = value  # inside a vector, far from either end
        return values

    return problem.like({name: put(problem.operands[name]) for name in names})


MOST_BIAS = 0.1
"""The average error in ULP that passes."""


@check(
    place=190,
    facet="dtypes",
    catches="results that are truncated instead of rounded to nearest, each within one ULP",
    advice="Round to the nearest once, at the end; compute 16-bit dtypes in float32.",
    adapt=lambda case: geometry_of(case).for_rounding(case),
    asks=lambda case: case.reduction == "none" and case.item_bytes == 2,
    needs="float16 and bfloat16 without a reduction",
    units=(ELEMENT, ROW),
)
def rounding(problem: Problem, subject: Subject, tally: Tally) -> None:
    """Check 16-bit results for a bias of their rounding.

    The mean difference of some ten thousand results from the correctly rounded ones is near zero if
    they are rounded to nearest, and half a unit if they are truncated.

    With 32 bits and more, roundings of intermediate values are biased too.
    """
    incoming = problem.usual
    answer = subject.send(problem.call(incoming))
    torchs = [own.send(problem.call(incoming)) for own in problem.torchs_own]
    for part, got in answer.items().items():
        if part == LOSS and problem.oracle.dtype.itemsize > 2:  # that of log-probabilities
            continue
        owns = [own.items()[part] for own in torchs]
        tally.add(_judge_bias(got, owns, list(problem.truths(part, incoming))), None, f"{part}: ")


def _judge_bias(
    result: Tensor | None, torchs: Sequence[Tensor | None], truths: Sequence[Truth]
) -> Outcome:
    if result is None:
        return Outcome(FAIL, "expected a tensor, got None")
    mean = _bias(result, truths)
    if abs(mean) <= MOST_BIAS:
        return Outcome(PASS)
    way = "large" if mean > 0 else "small"
    reason = f"expected no bias on average, but results are {abs(mean):.2f} ulp too {way}"
    for own in (_bias(each, truths) for each in torchs if each is not None):
        if abs(own) > MOST_BIAS and own * mean > 0 and abs(mean) <= abs(own) + MOST_BIAS:
            return Outcome(WARN, reason, Code.SAME_ERROR_AS_PYTORCH)
    return Outcome(FAIL, reason)


def _bias(result: Tensor, truths: Sequence[Truth]) -> float:
    """Return the mean error of results in ULP; 0 if there are too few for a significant bias."""
    errors = torch.cat([_rounding_errors(result[truth.block], truth) for truth in truths])
    return float(errors.mean()) if len(errors) >= 1000 else 0.0


def _rounding_errors(result: Tensor, truth: Truth) -> Tensor:
    """Return the signed errors in ULP of elements whose truth the dtype must round."""
    value = truth.value
    rounded = value.to(result.dtype).double()
    errors = (result.double() - rounded) * value.sign() / ulp(value, result.dtype)
    counted = (rounded != value) & errors.isfinite()
    if truth.magnitude is not None:
        counted &= truth.magnitude <= 16 * value.abs()  # what cancels is left out
    return errors[counted]


SUMMED_ELEMENTS = 65537
"""One more than a power of two, so that the last partial sum has one element."""
MOST_ULP = 1.0


@check(
    place=210,
    facet="value",
    catches="a sum that loses more than a unit in the last place",
    advice="Sum float64 in float64, pairwise or compensated; never in float32.",
    pass_="forward",
    adapt=of_shape((SUMMED_ELEMENTS,), (SUMMED_ELEMENTS,), distribution="uniform"),
    asks=lambda case: case.reduction != "none" and case.dtype == "float64",
    needs="sums of float64",
    concerns=lambda implementation: implementation.exact_sums,
    units=(ELEMENT,),
)
def float64_sums(problem: Problem, subject: Subject, tally: Tally) -> None:
    """Check the accuracy of float64 sums.

    Sums of 65,537 float64 numbers, equal and of several distributions, against the exact sum of the
    implementation's own elements; only for `custom`, because PyTorch's own sums are off by several
    units.
    """
    each = bind(subject.implementation, replace(problem.case, reduction="none"))
    for name, operands in _summed_operands(problem):
        elements = each.send(Forward(operands))
        for path, wrt in paths(problem).items():
            loss = float(subject.send(Forward(operands, wrt)))
            off = _ulps(loss, elements, problem.case.reduction)
            if not off <= MOST_ULP:
                text = f"the sum is {off:.3g} ulp off the exact sum of its own elements"
                tally.fail(f"{text}; allowed: {MOST_ULP:g} ulp", f"{name}{path}: ")


def _summed_operands(problem: Problem) -> Iterator[tuple[str, Operands]]:
    """Yield operands by name; equal ones have a nonzero loss for all parameters."""
    first, *others = problem.case.spec.operands
    for value in (0.1, -0.7):
        # Few bits, so that the loss of an element is exact as a rule.
        values = {operand.name: operand.domain.at_least_loss for operand in others}
        values[first.name] = float(first.domain.of_draws(torch.tensor(value, dtype=torch.float32)))
        filled = {n: torch.full_like(t, values[n]) for n, t in problem.operands.items()}
        yield f"{SUMMED_ELEMENTS} equal numbers of {value:g}", filled
    for name in ("uniform", "normal", "heavy_tailed"):
        case = replace(problem.case, distribution=name)
        yield name, problem.variant(name, partial(Problem.of, case)).operands


def _ulps(got: float, elements: Tensor, reduction: str) -> float:
    """Return the error in ULP of a sum or mean of elements."""
    terms = elements.flatten().tolist()
    total = math.fsum(terms)
    exact = Fraction(total) + Fraction(math.fsum([*terms, -total]))
    if reduction == "mean":
        exact /= len(terms)
    return float(abs(Fraction(got) - exact) / Fraction(math.ulp(float(exact))))
