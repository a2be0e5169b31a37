"""Checks that gradients are added to an existing ``.grad``.

Catches: a backward pass that clears ``.grad``, overwrites it or adds to it by itself, and one that
returns memory which it continues to use, so that a sum changes behind the optimizer's back. All
operands start with a ``.grad`` of the opposite sign; two losses of them are computed and
differentiated one after the other. The expected ``.grad`` is the earlier one plus twice the
gradient of a plain call, within the tolerance of sums. One size is enough.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from losscli.implementations.subject import Subject
from losscli.runs.records import FAIL, PASS, VerifyResult
from losscli.truth.blocks import blocks
from losscli.truth.distances import Errors, compare, misfit
from losscli.truth.oracle import Truth
from losscli.truth.problem import Problem
from losscli.truth.tolerances import Verdict, judge_sums
from losscli.truth.worst import Worst
from losscli.verify.checks.check import Check
from losscli.verify.checks.second_derivatives import curvature_case

TIMES = 2
"""The first pass could find memory of its own where the second does not."""
_SHARE = -0.75
"""Of the gradient, that is there before: small beside it, either would hide the other."""


def _run(problem: Problem, subject: Subject) -> Iterator[VerifyResult]:
    """Judge the sums of all operands; the worst counts."""
    worst = Worst()
    worst.add(Verdict(PASS), None, "")
    gradients = subject.answer(problem.call(problem.usual)).gradients
    once = {name: gradient for name, gradient in gradients.items() if gradient is not None}
    before = {name: gradient * _SHARE for name, gradient in once.items()}
    if len(once) < len(gradients):
        which = "both" if len(gradients) == 2 else "all"
        text = f"expected gradients of {which} operands, got none of one"
        worst.add(Verdict(FAIL, text), None, "")
    else:
        found = subject.accumulated(problem.call(problem.usual), before, TIMES)
        for name, got in found.items():
            worst.add(*_judge(before[name], once[name], got), f".grad of the {name}: ")
    yield worst.result(problem, subject.name, CHECK.name)


def _judge(before: Tensor, once: Tensor, got: Tensor | None) -> tuple[Verdict, Errors | None]:
    """Judge a ``.grad`` by what it was before and the gradient of one call."""
    wrong = misfit(got, before.shape, before, before.dtype)
    if wrong or got is None:
        return Verdict(FAIL, wrong), None
    due = before.double() + TIMES * once.double()
    scale = before.double().abs() + TIMES * once.double().abs()
    errors = compare(got, (Truth(b, due[b], scale[b]) for b in blocks(due.shape)))
    verdict = judge_sums(errors, got.dtype)
    if verdict.status != PASS:
        reason = f"{verdict.reason}; .grad held {_SHARE:g} times the gradient before the call"
        verdict = Verdict(verdict.status, reason)
    return verdict, errors


CHECK = Check(
    "accumulation",
    "forward_backward",
    _run,
    adapt=curvature_case,
    once=True,
)
