"""Checks that a call changes no state of the process.

Catches: a call that changes the number of threads, the default dtype, random states, grad mode,
flush-denormal mode, flags of TF32 and determinism, environment variables, signal handlers or
functions of torch and Python, for all later code. The check names each change and restores the
state, so that the change affects no other result. The other checks fail for such a change as well,
because some changes happen only in the first call of a process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from losscli.implementations.process_state import reason_of
from losscli.implementations.subject import Subject
from losscli.runs.records import FAIL, PASS, VerifyResult
from losscli.truth.problem import Problem
from losscli.verify.checks.check import Check
from losscli.verify.checks.second_derivatives import curvature_case


def _run(problem: Problem, subject: Subject) -> Iterator[VerifyResult]:
    """Read the state of the process around each step; the first that changes something counts."""
    call = problem.call(problem.usual)
    none = {name: torch.zeros_like(problem.operands[name]) for name in call.wrt}
    steps: dict[str, Callable[[], object]] = {
        "binding the loss": subject.again,
        "forward": lambda: subject.loss(problem.operands),
        "forward and backward": lambda: subject.answer(call),
        # No grad mode is set around it, so that one which the call sets shows.
        "a training step": lambda: subject.accumulated(call, none, 1),
    }
    for name, step in steps.items():
        changed = subject.watch(step)
        if changed:
            reason = reason_of(changed)
            yield VerifyResult(
                problem.case, subject.name, CHECK.name, FAIL, f"{name} {reason}", code=reason.code
            )
            return
    yield VerifyResult(problem.case, subject.name, CHECK.name, PASS)


CHECK = Check(
    "left_behind",
    "forward_backward",
    _run,
    adapt=curvature_case,
    once=True,
)
