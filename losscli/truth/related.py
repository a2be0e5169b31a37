"""Judges answers that must agree with each other; the oracle only gives the scale.

So mistakes show that the reference and a kernel share. Two answers may differ by twice the
tolerance of one. The sum of a row's gradient, which is the gradient of a number added to all
classes, has the bound of a broadcast operand.
"""

from dataclasses import replace

import torch
from torch import Tensor

from losscli.losses import LOSS
from losscli.runs.records import FAIL, PASS
from losscli.truth.blocks import whole
from losscli.truth.distances import Errors, Truth, compare
from losscli.truth.problem import Problem, operand_of
from losscli.truth.setup import Incoming
from losscli.truth.tolerances import Outcome, describe

ANSWERS = 2
"""How many answers are off."""


def scale_of(problem: Problem, part: str, incoming: Incoming) -> Tensor:
    """Return the scale of errors of the loss or a gradient."""
    oracle = problem.oracle
    shape = oracle.loss_shape() if part == LOSS else problem.operands[operand_of(part)].shape
    scale = torch.zeros(shape, dtype=torch.float64, device=oracle.device)
    for truth in problem.truths(part, incoming):
        scale[truth.block] = truth.scale.abs()
    return scale


def judge_pair(
    problem: Problem, part: str, got: Tensor | None, other: Tensor | None, scale: Tensor
) -> tuple[Outcome, Errors | None]:
    """Judge the loss or a gradient against that of another answer, which must be equal."""
    wrong = problem.misfit(part, got)
    if wrong or got is None or other is None or other.shape != got.shape:
        return Outcome(FAIL, wrong or "one of two answers has another shape"), None
    errors = compare(got, [Truth(whole(got.shape), other.double(), scale)])
    share = replace(errors, ulp=errors.ulp / ANSWERS, relative=errors.relative / ANSWERS)
    oracle, granted = problem.oracle, problem.granted
    if part == LOSS:
        outcome = oracle.judge_loss(share, Errors, granted)
    else:
        outcome = oracle.judge_gradient(operand_of(part), share, Errors, granted)
    if outcome.status != FAIL:
        return Outcome(PASS), errors
    reason = f"{describe(errors)} from each other; allowed: {ANSWERS} times the error of one"
    return Outcome(FAIL, reason), errors


def judge_sum_of_rows(
    problem: Problem, name: str, gradient: Tensor | None, incoming: Incoming, dimension: int
) -> tuple[Outcome, Errors | None]:
    """Judge that each row of a gradient sums to zero along a dimension."""
    operand = problem.operands[name]
    wrong = problem.misfit(name, gradient)
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
