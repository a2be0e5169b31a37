"""Checks backward passes that a CUDA graph captured.

Catches: work that a captured backward pass leaves out because it was not needed during the capture,
or in the replay before; an expectation that one replay changes for the next; memory that belongs to
the capture alone. The check captures a whole step and replays it with incoming gradients that
change between replays; it captures backward alone and replays it with 2 and then with 1; and it
captures forward and backward separately by ``torch.cuda.make_graphed_callables``. Each gradient has
to be right by the oracle, and bit for bit that of a retained graph, as in the check of steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from losscli.implementations.call_data import Answer, Call
from losscli.implementations.subject import Subject, recordings
from losscli.runs.records import PASS, VerifyResult
from losscli.truth.problem import Problem
from losscli.truth.tolerances import Verdict
from losscli.truth.worst import Worst
from losscli.verify.checks.check import Check
from losscli.verify.checks.second_derivatives import curvature_case
from losscli.verify.checks.steps import Due
from losscli.verify.memory_plan import Held

REPLAYS = (2.0, 1.0, 1.0, 0.5, 0.5, 2.0, 1.0)
"""Incoming gradients of successive replays."""


def _run(problem: Problem, subject: Subject) -> Iterator[VerifyResult]:
    """Judge replays of each kind; the worst counts."""
    worst = Worst()
    worst.add(Verdict(PASS), None, "")
    due = Due.of(problem, subject)
    call = problem.call(problem.filled(1.0, problem.wrt))
    incoming = [problem.filled(value).grad_output.clone() for value in REPLAYS]
    _judge(due, subject.backward_replays(call, incoming), "backward captured", worst)
    _judge(due, _whole_steps(subject, call), "forward and backward captured", worst)
    _judge(due, subject.graphed(call, incoming), "make_graphed_callables", worst)
    yield worst.result(problem, subject.name, CHECK.name)


def _whole_steps(subject: Subject, call: Call) -> Iterator[Answer]:
    """Yield replays of one graph of both passes, for one incoming gradient after the other."""
    assert call.grad_output is not None
    read = call.grad_output.clone()
    operands = {name: operand.clone() for name, operand in call.operands.items()}
    own = Call(operands, call.wrt, read)
    with recordings(subject, [own]) as (recording,):
        for value in REPLAYS:
            read.fill_(value)
            yield subject.replay(recording)


def _judge(due: Due, answers: Iterable[Answer], title: str, worst: Worst) -> None:
    for number, (value, answer) in enumerate(zip(REPLAYS, answers, strict=True), 1):
        due.judge(value, answer.gradients, f"{title}, replay {number}", worst)


CHECK = Check(
    "captured_backward",
    "forward_backward",
    _run,
    adapt=curvature_case,
    once=True,
    needs_gpu=True,
    held=lambda case: Held(operands=4, results=8, streams=4),
)
