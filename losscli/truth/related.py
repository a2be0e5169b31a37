"""Judges answers that have to agree with one another, whatever the oracle says.

Each of two answers may be off by what tolerances.py allows, so they may differ by twice that. The
scale of a difference is that of the errors of either: the larger of their largest terms. The oracle
gives this scale alone; what an answer is expected to be is another answer of the same
implementation. So a mistake that the reference formula shares with a kernel shows as well.

The sum of a row's gradient is the gradient of a number that is added to all classes of the row, an
operand that is broadcast. tolerances.py has the bar of such sums, relative to the sum of the
magnitudes of their terms. No magnitude counts as smaller than the smallest normal number, from
which on the spacing of a dtype, and so the rounding of an element, stays as it is.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from losscli.losses import LOSS
from losscli.runs.records import FAIL, PASS
from losscli.truth.blocks import whole
from losscli.truth.distances import Errors, Truth, compare, misfit
from losscli.truth.problem import Incoming, Problem
from losscli.truth.tolerances import Outcome, describe, judge_value

ANSWERS = 2
"""How many answers are off."""


def scale_of(problem: Problem, part: str, incoming: Incoming) -> Tensor:
    """Return the magnitudes at which errors of a loss, or of an operand's gradient, are measured.

    ``part``: ``LOSS``, or the name of an operand.
    """
    if part == LOSS:
        shape, truths = problem.oracle.loss_shape(), problem.value()
    else:
        shape, truths = problem.operands[part].shape, problem.gradient(part, incoming)
    scale = torch.zeros(shape, dtype=torch.float64, device=problem.oracle.device)
    for truth in truths:
        scale[truth.block] = truth.scale.abs()
    return scale


def judge_pair(
    problem: Problem, part: str, got: Tensor | None, other: Tensor | None, scale: Tensor
) -> tuple[Outcome, Errors | None]:
    """Judge a part of one answer by the same part of another one, which has to be equal.

    Args:
        problem: whose tolerances hold for both.
        part: ``LOSS``, or the name of an operand.
        got: the part of an answer.
        other: the same part of the other answer, in any dtype.
        scale: at which their errors are measured.
    """
    due, dtype = problem.oracle.loss_shape(), problem.oracle.dtype
    if part != LOSS:
        due, dtype = problem.operands[part].shape, problem.operands[part].dtype
    wrong = misfit(got, due, problem.prediction, dtype)
    if wrong or got is None or other is None or other.shape != due:
        return Outcome(FAIL, wrong or "one of two answers has another shape"), None
    truth = Truth(whole(due), other.double(), scale)
    errors = compare(got, [truth])
    share = replace(errors, ulp=errors.ulp / ANSWERS, relative=errors.relative / ANSWERS)
    if _judged(problem, part, share, dtype).status != FAIL:
        return Outcome(PASS), errors
    reason = f"{describe(errors)} from each other; allowed: {ANSWERS} times the error of one"
    return Outcome(FAIL, reason), errors


def _judged(problem: Problem, part: str, errors: Errors, dtype: torch.dtype) -> Outcome:
    """Judge the errors of a part of one answer as the oracle's are judged."""
    if part == LOSS and problem.case.reduction != "none":
        return judge_value(errors, Errors(), dtype, problem.granted)
    if part != LOSS and problem.oracle.is_summed(part):
        return problem.oracle.judge_sums(errors, dtype, problem.granted)
    return problem.oracle.judge_units(errors, dtype, problem.granted)


def judge_sum_of_rows(
    problem: Problem, name: str, gradient: Tensor | None, incoming: Incoming, dimension: int
) -> tuple[Outcome, Errors | None]:
    """Judge that the gradient of each row sums to zero.

    Args:
        problem: whose gradient it is.
        name: of the operand.
        gradient: of the operand.
        incoming: what it was multiplied by.
        dimension: that of the classes.
    """
    operand = problem.operands[name]
    wrong = misfit(gradient, operand.shape, operand, operand.dtype)
    if wrong or gradient is None:
        return Outcome(FAIL, wrong), None
    least = torch.finfo(operand.dtype).tiny
    scale = scale_of(problem, name, incoming).clamp(min=least).sum(dimension)
    total = gradient.double().sum(dimension)
    zeros = torch.zeros_like(total)
    truth = Truth(whole(total.shape), zeros, scale)
    # In float64, so that the sum is not rounded; measured as one in the dtype of the gradient.
    errors = compare(total, [truth])
    share = torch.finfo(torch.float64).eps / torch.finfo(operand.dtype).eps
    errors = replace(errors, ulp=errors.ulp * share)
    outcome = problem.oracle.judge_sums(errors, operand.dtype, problem.granted)
    if outcome.status != FAIL:
        return Outcome(PASS), errors
    return outcome, errors
