"""Checks class numbers that are no class.

Catches: a read beyond the end of a row, or before its begin, that comes back as a loss. On the CPU
each such target has to raise an error, as PyTorch's does, and the call after it has to be right. On
a GPU, where PyTorch's assertion ends the process's use of the device, the check applies to
losscli's own kernels, which promise NaN for the row.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from losscli.cases import Case
from losscli.implementations.errors import SubjectError
from losscli.implementations.subject import Subject
from losscli.losses import CLASS_NUMBERS, ROW
from losscli.runs.records import FAIL, PASS, VerifyResult
from losscli.truth.problem import Problem
from losscli.truth.tolerances import Verdict
from losscli.truth.worst import Worst
from losscli.verify.checks.check import Check

SHAPE = (7, 37)
ROW_OF_WRONG = 4


def wrong_case(case: Case) -> Case:
    """Return the case with a small shape."""
    return case.reshaped(SHAPE, distribution="normal", scale=1.0)


def _has_numbers(case: Case) -> bool:
    return any(operand.kind == CLASS_NUMBERS for operand in case.spec.operands)


def _run(problem: Problem, subject: Subject) -> Iterator[VerifyResult]:
    """Judge each wrong number, alone and where a gradient is wanted; the first counts."""
    worst = Worst()
    worst.add(Verdict(PASS), None, "")
    on_cpu = problem.case.device == "cpu"
    name = next(o.name for o in problem.case.spec.operands if o.kind == CLASS_NUMBERS)
    if on_cpu or subject.implementation.held_to_oracle:
        for number in (-1, problem.case.classes, problem.case.classes + 2**20):
            wrong = problem.variant(str(number), partial(_with, problem, name, number))
            for wrt in ((), problem.wrt[:1]):
                text = _judge(wrong, subject, wrt, on_cpu=on_cpu)
                if text:
                    worst.add(Verdict(FAIL, text), None, f"{name} of {number}: ")
    worst.add(*problem.judge_loss(subject.loss(problem.operands)), "after wrong targets: ")
    yield worst.result(problem, subject.name, CHECK.name)


def _judge(problem: Problem, subject: Subject, wrt: tuple[str, ...], *, on_cpu: bool) -> str:
    """Say what is wrong with the answer to a wrong target; empty if nothing is."""
    try:
        loss = subject.loss(problem.operands, wrt)
    except SubjectError:
        return "" if on_cpu else "expected NaN for the row, got an error"
    if on_cpu:
        return "expected an error, got none"
    # Of several values of a row, the first.
    row = (loss[..., ROW_OF_WRONG] if problem.case.reduction == "none" else loss).flatten()[0]
    return "" if bool(row.isnan()) else f"expected NaN for the row, got {float(row):.9g}"


def _with(problem: Problem, name: str, number: int) -> Problem:
    target = problem.operands[name].clone()
    target[ROW_OF_WRONG] = number
    return problem.like({**problem.operands, name: target})


CHECK = Check(
    "wrong_targets",
    "forward",
    _run,
    adapt=wrong_case,
    once=True,
    units=(ROW,),
    asks=_has_numbers,
    needs="losses of class numbers",
)
