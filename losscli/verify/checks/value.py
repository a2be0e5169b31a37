"""Checks the loss itself.

Catches: a wrong formula, constant or parameter, a wrong branch, elements that are left out or read
twice, a wrong broadcast axis, a sum where a mean is expected, an accumulator that is too narrow, a
result of the wrong shape, dtype or device. The check computes the loss twice: alone, and on the
path that prepares the gradient of the prediction, because fused kernels have a separate path for
that.
"""

from __future__ import annotations

from collections.abc import Iterator

from losscli.implementations.subject import Subject
from losscli.runs.records import VerifyResult
from losscli.truth.problem import Problem
from losscli.truth.worst import Worst, to_error
from losscli.verify.checks.check import Check


def _run(problem: Problem, subject: Subject) -> Iterator[VerifyResult]:
    """Judge the loss on both paths; the worse counts."""
    worst = Worst()
    worst.add(*problem.judge_loss(subject.loss(problem.operands)), "")
    worst.add(
        *problem.judge_loss(subject.loss(problem.operands, problem.wrt[:1])),
        "when a gradient is wanted: ",
    )
    reference = to_error(problem.reference_errors)
    yield worst.result(problem, subject.name, "value", to_error(worst.errors), reference)


CHECK = Check("value", "forward", _run)
