"""Checks several backward passes through one retained graph.

Catches: a stored gradient that is scaled in place, so that the second pass scales it twice; buffers
that the first pass frees or consumes although the graph is retained; a result of the first pass
that is returned again for any incoming gradient, or that a later pass overwrites. The check
differentiates one loss four times, with incoming gradients of -3, 1, -3 and 1 (without a reduction
a tensor, its double and both again). The oracle judges each gradient when it is computed, and once
more after the last pass. One size is enough.
"""

from __future__ import annotations

from collections.abc import Iterator

from losscli.implementations.call_data import Answer, Call
from losscli.implementations.subject import Subject
from losscli.runs.records import PASS, VerifyResult
from losscli.truth.problem import Incoming, Problem
from losscli.truth.tolerances import Verdict
from losscli.truth.worst import Worst
from losscli.verify.checks.check import Check
from losscli.verify.checks.expectation import judge
from losscli.verify.checks.second_derivatives import curvature_case


def _run(problem: Problem, subject: Subject) -> Iterator[VerifyResult]:
    """Judge each pass; the worst counts."""
    worst = Worst()
    worst.add(Verdict(PASS), None, "")
    one, other = _incoming(problem)
    turns = (one, other, one, other)
    call = Call(problem.operands, problem.wrt)
    passes = zip(turns, subject.retained(call, [t.grad_output for t in turns]), strict=True)
    found = []
    for number, (turn, answer) in enumerate(passes, 1):
        found.append((turn, answer))
        where = f"backward {number} through one graph, incoming gradient {turn.name}"
        _judge(problem, turn, answer, where, worst)
    for number, (turn, answer) in enumerate(found, 1):
        where = f"what backward {number} returned, after {len(turns)} through one graph"
        _judge(problem, turn, answer, where, worst)
    yield worst.result(problem, subject.name, CHECK.name)


def _judge(problem: Problem, turn: Incoming, answer: Answer, where: str, worst: Worst) -> None:
    for name, got in answer.items().items():
        if name != "loss":
            judge(problem, turn, name, got, where, worst)


def _incoming(problem: Problem) -> tuple[Incoming, Incoming]:
    """Return two incoming gradients, of which one is 1 where the loss is reduced."""
    if problem.case.reduction != "none":
        return problem.others[-1], problem.usual
    doubled = Incoming("twice that", problem.wrt, problem.usual.grad_output * 2)
    return problem.usual, doubled


CHECK = Check(
    "retained",
    "forward_backward",
    _run,
    adapt=curvature_case,
    once=True,
)
