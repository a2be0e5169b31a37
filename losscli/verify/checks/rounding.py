"""Checks 16-bit results for a bias of their rounding.

Catches: results that are truncated, or rounded up, instead of rounded to nearest. Each is within a
unit in the last place, so no tolerance of an element finds it; but the average error of many
results rounded to nearest is near zero, and that of truncated results is half a unit. The check
applies to the loss and the gradients without a reduction, in 16 bits; with 32 bits and more the
roundings of intermediate values have a bias as well. The average is that of the differences from
the correctly rounded results, because a parameter (a margin of 0.1 in bfloat16, for example) can
bias these results too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from losscli.cases import Case
from losscli.implementations.subject import Subject
from losscli.losses import ROW
from losscli.runs.records import FAIL, NO_WORSE_THAN_TORCH, PASS, WARN, VerifyResult
from losscli.truth.distances import ulp
from losscli.truth.oracle import Truth
from losscli.truth.problem import Problem
from losscli.truth.tolerances import Verdict
from losscli.truth.worst import Worst
from losscli.verify.checks.check import Check

ELEMENTS = 16411
"""So many that the average of errors evenly spread over a unit is within 0.01 of 0, four times its
own deviation."""
ROWS = (1033, 17)
"""About as many elements, in enough rows that their losses say something as well."""
MOST = 0.1
"""Of a unit, on the average."""
_CANCELLED = 16.0
"""An element with a term so many times larger says nothing: what the terms' own roundings leave may
be as large as that of the result."""
_FEWEST = 1000
"""Elements that are no numbers of the dtype; fewer say nothing."""


def rounding_case(case: Case) -> Case:
    """Return the case in one dimension, or in many short rows, with values all over."""
    if case.spec.unit == ROW:
        return case.reshaped(ROWS, distribution="normal")
    return case.reshaped((ELEMENTS,), (ELEMENTS,), distribution="normal")


def _run(problem: Problem, subject: Subject) -> Iterator[VerifyResult]:
    """Judge the average error of the loss and of all gradients; the first that leans counts."""
    incoming, oracle = problem.usual, problem.oracle
    answer = subject.answer(problem.call(incoming))
    worst = Worst()
    worst.add(Verdict(PASS), None, "")
    torchs = [own.answer(problem.call(incoming)) for own in problem.torchs_own]
    losses = [own.loss for own in torchs]
    if oracle.dtype.itemsize == 2:  # that of log-probabilities is float32
        worst.add(_judge(answer.loss, losses, list(oracle.value())), None, "loss: ")
    for operand in incoming.wrt:
        truths = list(oracle.gradient(operand, incoming.grad_output))
        owns = [own.gradients[operand] for own in torchs]
        judged = _judge(answer.gradients[operand], owns, truths)
        worst.add(judged, None, f"{operand} gradient: ")
    yield worst.result(problem, subject.name, "rounding")


def _judge(
    result: Tensor | None, torchs: Sequence[Tensor | None], truths: Sequence[Truth]
) -> Verdict:
    if result is None:
        return Verdict(FAIL, "expected a tensor, got None")
    mean = _average(result, truths)
    if abs(mean) <= MOST:
        return Verdict(PASS)
    way = "large" if mean > 0 else "small"
    reason = f"expected no bias on average, but results are {abs(mean):.2f} ulp too {way}"
    for own in (_average(each, truths) for each in torchs if each is not None):
        if abs(own) > MOST and own * mean > 0 and abs(mean) <= abs(own) + MOST:
            return Verdict(WARN, reason, NO_WORSE_THAN_TORCH)
    return Verdict(FAIL, reason)


def _average(result: Tensor, truths: Sequence[Truth]) -> float:
    """Return how far results lie from the correctly rounded ones, in ULP; 0 of too few."""
    leaning = torch.cat([_leaning(result[truth.block], truth) for truth in truths])
    return float(leaning.mean()) if len(leaning) >= _FEWEST else 0.0


def _leaning(result: Tensor, truth: Truth) -> Tensor:
    """Return the errors in magnitude, in ULP, of what the dtype does not hold as it is."""
    value = truth.value
    rounded = value.to(result.dtype).double()
    errors = (result.double() - rounded) * value.sign() / ulp(value, result.dtype)
    telling = (rounded != value) & errors.isfinite()
    if truth.magnitude is not None:
        telling &= truth.magnitude <= _CANCELLED * value.abs()
    return errors[telling]


CHECK = Check(
    "rounding",
    "forward_backward",
    _run,
    adapt=rounding_case,
    once=True,
    asks=lambda case: case.reduction == "none" and case.item_bytes == 2,
    needs="float16 and bfloat16 without a reduction",
)
