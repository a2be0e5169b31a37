"""Checks NaN, infinities and other values at the ends of a dtype's range.

Catches: NaN or infinity that is replaced or clamped away, a branch that compares the wrong way on
NaN, a gradient that differs from PyTorch's there, subnormals flushed to zero, squares that overflow
needlessly. Of losses that add up squares these have to be in range. A value that PyTorch's own
formula refuses is left out. Where PyTorch's own gradient is NaN any gradient passes, because that
of torch.compile differs there; the loss, which is NaN as well, has to be NaN. The check plants one
value at a time, first in the prediction, then in each other operand (but not where values are
discrete, as signs are), then in all of these, among ordinary values; one small size is enough.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from losscli.cases import Case
from losscli.implementations.subject import Subject
from losscli.losses import MODEL, RowSpec
from losscli.model_case import ModelCase
from losscli.runs.records import VerifyResult
from losscli.truth.model import WrongReferenceError
from losscli.truth.problem import Problem
from losscli.verify.checks.check import Check, Tally

SHAPE = (13, 37)
PLACE = (7, 19)
"""Of the value: in the middle of a vector, far from either end."""


def special_values(dtype: torch.dtype, squares: bool = False) -> dict[str, float]:
    """Return the values by their names.

    ``squares``: whether squares have to be in range.
    """
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


def specials_case(case: Case) -> Case:
    """Return the case with a small shape, and values all over."""
    return case.reshaped(SHAPE, distribution="normal")


def _run(problem: Problem, subject: Subject) -> Iterator[VerifyResult]:
    """Judge the loss and all gradients with each value; the worst counts, and all are named."""
    tally = Tally()
    for name, variant in _variants(problem):
        answer = subject.answer(variant.call(variant.usual))
        tally.judge(name, variant, variant.usual, answer, any_for_nan=True)
    yield tally.result(problem, subject.name, "specials")


def _variants(problem: Problem) -> Iterator[tuple[str, Problem]]:
    """Yield the case with each value in each operand that takes it."""
    spec = problem.case.spec
    squares = spec.unit == MODEL or (isinstance(spec, RowSpec) and spec.squares)
    for title, value in special_values(problem.oracle.dtype, squares).items():
        operands = _free(problem)
        places: dict[str, tuple[str, ...]] = {f"the {name}": (name,) for name in operands}
        if len(operands) > 1:
            together = "both" if len(problem.operands) == 2 else " and ".join(operands)
            places[together] = operands
        for where, planted in places.items():
            if any(_is_refused(problem, name, value) for name in planted):
                continue
            if isinstance(spec, RowSpec) and len(planted) >= 3 and 1 < value < math.inf:
                continue  # the product of a probability and a weight is out of range by itself
            variant = _planted(problem, value, planted)
            if _is_taken(variant):
                yield f"{title} in {where}", variant


def _free(problem: Problem) -> tuple[str, ...]:
    """Return the names of the operands that may have any value: none whose values are discrete.

    And no parameters of a Model.
    """
    case = problem.case
    given = {a.name for a in case.arguments} if isinstance(case, ModelCase) else {*case.spec.names}
    return tuple(n for n, domain in case.spec.domains.items() if n in given and not domain.discrete)


def _is_refused(problem: Problem, name: str, value: float) -> bool:
    """Tell whether PyTorch refuses a value of an operand, which a GPU may not survive."""
    operand = next(each for each in problem.case.spec.operands if each.name == name)
    return value < operand.least or (operand.refused and not operand.domain.holds(value))


def _is_taken(problem: Problem) -> bool:
    """Tell whether PyTorch's own formula takes the operands; it may check them itself."""
    try:
        next(iter(problem.value()))
    except (RuntimeError, WrongReferenceError):
        return False
    return True


def _planted(problem: Problem, value: float, names: tuple[str, ...]) -> Problem:
    """Return the problem with a value in one place of some operands."""

    def put(values: Tensor) -> Tensor:
        values = values.clone(memory_format=torch.contiguous_format)
        row = values.reshape(-1, values.shape[-1]) if values.dim() else values.view(1, 1)
        row[PLACE[0] % len(row), PLACE[1] % row.shape[1]] = value
        return values

    planted = {name: put(problem.operands[name]) for name in names}
    return problem.like({**problem.operands, **planted})


CHECK = Check(
    "specials",
    "forward_backward",
    _run,
    adapt=specials_case,
    once=True,
)
