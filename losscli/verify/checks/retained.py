"""Several backward passes through one graph.

Catches: gradients of one pass that the next writes over, an incoming gradient that stays the first
one's or is applied on top of it, a graph that cannot be retained. The loss is computed once; its
gradients are asked for again and again, for other incoming gradients, and all are judged last.
"""

from __future__ import annotations

from collections.abc import Iterator

from losscli.results import VerifyResult
from losscli.verify.checks.check import Check, Tally
from losscli.verify.checks.second_derivatives import curvature_case
from losscli.verify.problem import Incoming, Problem
from losscli.verify.subject import Subject


def _run(problem: Problem, subject: Subject) -> Iterator[VerifyResult]:
    """Judge the gradients of each pass; the worst counts."""
    tally = Tally()
    first = problem.usual
    other = Incoming(f"{first.name}, times -3", first.wrt, first.grad_output * -3)
    passes = (first, other, first)
    found = subject.retained(problem.call(first), [each.grad_output for each in passes])
    for number, (incoming, gradients) in enumerate(zip(passes, found, strict=True), 1):
        for operand in incoming.wrt:
            judged = problem.judge_gradient(operand, gradients[operand], incoming)
            tally.add(f"pass {number} of {len(passes)}", f"{operand} gradient", judged)
    yield tally.result(problem, subject.name, "retained")


CHECK = Check(
    "retained",
    "forward_backward",
    "gradients that a second pass through the same graph changes",
    _run,
    adapt=curvature_case,
    once=True,
)
