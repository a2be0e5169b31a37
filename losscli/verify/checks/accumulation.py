"""Gradients that are added to those that are there already.

Catches: a backward pass that clears ``.grad``, writes over it or adds to it by itself, and one that
returns memory which it goes on using, so that a sum changes behind the optimizer's back. Both
operands start with a ``.grad`` of their own, of the other sign; two losses of them are computed and
differentiated one after the other. Expected is what was there, plus twice the gradient of a plain
call: bitwise, if the subject is deterministic, else within the bound of sums. One size is enough.
"""

from __future__ import annotations

from collections.abc import Iterator

from losscli.blocks import blocks
from losscli.oracle import Truth
from losscli.results import FAIL, PASS, VerifyResult
from losscli.verify.checks.check import Check, Worst
from losscli.verify.checks.expectation import Expectation, distance, same_bits
from losscli.verify.checks.second_derivatives import curvature_case
from losscli.verify.errors import compare
from losscli.verify.problem import Problem
from losscli.verify.subject import Subject, misfit
from losscli.verify.tolerances import Verdict, describe, judge_sums

TIMES = 2
"""The first pass could find memory of its own where the second does not."""
_SHARE = -0.75
"""Of the gradient, that is there before: small beside it, either would hide the other."""


def _run(problem: Problem, subject: Subject) -> Iterator[VerifyResult]:
    """Judge the sums of both operands; the worse counts."""
    worst = Worst()
    worst.add(Verdict(PASS), None, "")
    plain = Expectation.of(problem, subject, problem.usual)
    once = {name: g for name, g in plain.answer.gradients.items() if g is not None}
    before = {name: gradient * _SHARE for name, gradient in once.items()}
    if len(before) < len(plain.answer.gradients):
        worst.add(Verdict(FAIL, "expected gradients of both operands, got none of one"), None, "")
    else:
        found = subject.accumulated(problem.call(problem.usual), before, TIMES)
        for name, got in found.items():
            due = before[name].clone()
            for _ in range(TIMES):
                due += once[name]
            wrong = misfit(got, due.shape, due, due.dtype)
            if wrong or got is None:
                worst.add(Verdict(FAIL, wrong), None, f".grad of the {name}: ")
            elif plain.steady and not same_bits(due, got):
                reason = f"{describe(distance(due, got))}; it was {_SHARE:g} of the gradient before"
                worst.add(Verdict(FAIL, reason), None, f".grad of the {name}: ")
            elif not plain.steady:
                scale = before[name].abs().double() + TIMES * once[name].abs().double()
                truths = (Truth(b, due[b].double(), scale[b]) for b in blocks(due.shape))
                errors = compare(got, truths)
                worst.add(judge_sums(errors, got.dtype), errors, f".grad of the {name}: ")
    yield worst.result(problem, subject.name, CHECK.name)


CHECK = Check(
    "accumulation",
    "forward_backward",
    "gradients that are not added to those there already",
    _run,
    adapt=curvature_case,
    once=True,
)
