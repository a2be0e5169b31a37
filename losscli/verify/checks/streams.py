"""Checks calls on other streams than the default one.

Catches: kernels launched on the default stream instead of the current one, scratch memory or
counters that two launches share, memory that is reused while another stream still needs it. The
loss and both gradients are computed on a side stream, on contents that arrive on that stream just
before, then on two streams at once, on two inputs in turn. Each has to equal the run on the default
stream: bitwise, if the subject is deterministic there, else within the tolerances of the oracle.
"""

from __future__ import annotations

from collections.abc import Iterator

from losscli.cases import Case
from losscli.implementations.call_data import Call
from losscli.implementations.subject import Subject
from losscli.runs.records import VerifyResult
from losscli.truth.problem import Problem
from losscli.truth.worst import Worst
from losscli.verify.checks.check import Check
from losscli.verify.checks.expectation import Expectation, judge_each
from losscli.verify.memory_plan import Held


def rounds(case: Case) -> int:
    """Return how many launches each stream gets; fewer where all their results hardly fit."""
    return 8 if case.elements <= 2**22 else 2 if case.elements <= 2**28 else 1


def _run(problem: Problem, subject: Subject) -> Iterator[VerifyResult]:
    """Judge a side stream, then two at once."""
    worst = Worst()
    here, there = problem, problem.sibling()
    expected = [Expectation.of(p, subject, p.usual) for p in (here, there)]
    # What a kernel finds that runs before the contents have arrived: those of the other problem.
    stale = [
        {name: operand.clone() for name, operand in other.operands.items()}
        for other in (there, here)
    ]
    calls = [
        Call(buffers, e.incoming.wrt, e.incoming.grad_output, e.problem.operands)
        for buffers, e in zip(stale, expected, strict=True)
    ]
    (answers,) = subject.on_streams([[calls[0]]])
    expected[0].judge(answers.pop(), "on a side stream", worst)
    both = subject.on_streams([[call] * rounds(problem.case) for call in calls])
    judge_each(expected, both, "two streams at once, launch", worst)
    yield worst.result(problem, subject.name, "streams")


CHECK = Check(
    "streams",
    "forward_backward",
    _run,
    needs_gpu=True,
    held=lambda case: Held(operands=4, results=2 + 2 * rounds(case), streams=2),
)
