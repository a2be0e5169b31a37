"""Checks the accuracy of float64 sums.

Catches: a float64 sum that loses digits because no wider type can carry it. The loss of many equal
numbers, and of numbers of several distributions, has to be within a unit in the last place of the
exact sum of the implementation's own elements without a reduction: so only the sum is judged. The
check applies to implementations that promise it; PyTorch's own sums are off by several units.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from functools import partial

import torch
from msgspec.structs import replace
from torch import Tensor

from losscli.axes import Distribution
from losscli.cases import Case
from losscli.implementations.call_data import Operands
from losscli.implementations.subject import Subject, bind
from losscli.losses import ELEMENT
from losscli.runs.records import FAIL, PASS, VerifyResult
from losscli.truth.problem import Problem
from losscli.truth.tolerances import Verdict
from losscli.truth.worst import Worst
from losscli.verify.checks.check import Check

ELEMENTS = 65537
"""One more than a power of two: the last partial sum is of one element."""
MOST_ULP = 1.0
PATHS = {"": False, ", when a gradient is wanted": True}
"""Whether the loss is computed beside the gradient of the prediction."""
DISTRIBUTIONS: tuple[Distribution, ...] = ("uniform", "normal", "heavy_tailed")


def float64_case(case: Case) -> Case:
    """Return the case in one dimension."""
    return case.reshaped((ELEMENTS,), (ELEMENTS,), distribution="uniform")


def _run(problem: Problem, subject: Subject) -> Iterator[VerifyResult]:
    """Judge the sum of each; the worst counts."""
    worst = Worst()
    worst.add(Verdict(PASS), None, "")
    each = bind(subject.implementation, replace(problem.case, reduction="none"))
    for name, operands in _operands(problem):
        elements = each.loss(operands)
        for path, wants in PATHS.items():
            loss = subject.loss(operands, problem.wrt[:1] if wants else ())
            off = _ulps(float(loss), elements, problem.case.reduction)
            if not off <= MOST_ULP:
                reason = (
                    f"{name}{path}: the sum is {off:.3g} ulp off the exact sum of its own "
                    f"elements; allowed: {MOST_ULP:g} ulp"
                )
                worst.add(Verdict(FAIL, reason), None, "")
    yield worst.result(problem, subject.name, CHECK.name)


def _operands(problem: Problem) -> Iterator[tuple[str, Operands]]:
    """Yield operands by name; equal ones have a loss, whatever the parameters."""
    first, *others = problem.case.spec.operands
    for value in (0.1, -0.7):
        # Few bits, so that the loss of an element is exact as a rule.
        x = torch.tensor(value, dtype=torch.float32)
        values = {operand.name: operand.domain.quiet for operand in others}
        values[first.name] = float(first.domain.of_draws(x))
        filled = {n: torch.full_like(t, values[n]) for n, t in problem.operands.items()}
        yield f"{ELEMENTS} equal numbers of {value:g}", filled
    for distribution in DISTRIBUTIONS:
        case = replace(problem.case, distribution=distribution)
        own = problem.variant(distribution, partial(Problem.of, case))
        yield distribution, own.operands


def _ulps(got: float, elements: Tensor, reduction: str) -> float:
    """Return how far a sum or mean is from that of the elements, which is known exactly."""
    terms = elements.flatten().tolist()
    total = math.fsum(terms)
    exact = Fraction(total) + Fraction(math.fsum([*terms, -total]))
    if reduction == "mean":
        exact /= len(terms)
    return float(abs(Fraction(got) - exact) / Fraction(math.ulp(float(exact))))


CHECK = Check(
    "float64_sums",
    "forward",
    _run,
    adapt=float64_case,
    once=True,
    asks=lambda case: case.reduction != "none" and case.dtype == "float64",
    needs="sums of float64",
    concerns=lambda implementation: implementation.exact_sums,
    units=(ELEMENT,),
)
