"""Judges answers that must agree with each other, independent of the oracle.

Two answers may each be off by their tolerance, so they may differ by twice that. The oracle only
gives the scale, so mistakes show that the reference shares with a kernel. The sum of a row's
gradient is that of a constant added to all classes, a broadcast operand, and has its bound.
"""

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
    """Return the scale of errors of ``part``: ``LOSS``, or an operand's gradient."""
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
    """Judge a part of an answer against the same part of another, which must be equal."""
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
    if part == LOSS and problem.case.reduction != "none":
        return judge_value(errors, Errors(), dtype, problem.granted)
    if part != LOSS and problem.oracle.is_summed(part):
        return problem.oracle.judge_sums(errors, dtype, problem.granted)
    return problem.oracle.judge_units(errors, dtype, problem.granted)


def judge_sum_of_rows(
    problem: Problem, name: str, gradient: Tensor | None, incoming: Incoming, dimension: int
) -> tuple[Outcome, Errors | None]:
    """Judge that each row of a gradient sums to zero along a dimension."""
    operand = problem.operands[name]
    wrong = misfit(gradient, operand.shape, operand, operand.dtype)
    if wrong or gradient is None:
        return Outcome(FAIL, wrong), None
    least = torch.finfo(operand.dtype).tiny  # below it the spacing is constant
    scale = scale_of(problem, name, incoming).clamp(min=least).sum(dimension)
    total = gradient.double().sum(dimension)
    # In float64, so that the sum is not rounded; measured in the gradient's dtype.
    errors = compare(total, [Truth(whole(total.shape), torch.zeros_like(total), scale)])
    share = torch.finfo(torch.float64).eps / torch.finfo(operand.dtype).eps
    errors = replace(errors, ulp=errors.ulp * share)
    outcome = problem.oracle.judge_sums(errors, operand.dtype, problem.granted)
    return outcome if outcome.status == FAIL else Outcome(PASS), errors
