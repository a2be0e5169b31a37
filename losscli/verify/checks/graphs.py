"""Checks calls that a CUDA graph captured.

Catches: a synchronisation or an allocation that no capture allows, a result cached by the address
or the identity of its operands, scratch memory that a replay finds used, counters that are not
reset from replay to replay, two graphs that share scratch memory. Forward alone and forward with
backward are captured and replayed twice, with new contents in the same operands in between; then
two graphs are replayed at once on two streams, and one beside plain calls. Each replay has to equal
the plain call: bitwise, if the subject is deterministic, else within the tolerances of the oracle.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from losscli.implementations.call_data import Call
from losscli.implementations.subject import Subject, recordings
from losscli.runs.records import VerifyResult
from losscli.truth.problem import Incoming, Problem
from losscli.truth.worst import Worst
from losscli.verify.checks.check import Check
from losscli.verify.checks.expectation import Expectation, judge_each
from losscli.verify.checks.streams import rounds
from losscli.verify.memory_plan import Held


def _run(problem: Problem, subject: Subject) -> Iterator[VerifyResult]:
    """Judge replays by themselves, then beside others."""
    worst = Worst()
    sibling = problem.sibling()
    _new_contents(problem, sibling, subject, forward_alone=True, worst=worst)
    _new_contents(problem, sibling, subject, forward_alone=False, worst=worst)
    _at_once(problem, sibling, subject, worst)
    yield worst.result(problem, subject.name, "graphs")


def _new_contents(
    problem: Problem, sibling: Problem, subject: Subject, *, forward_alone: bool, worst: Worst
) -> None:
    """Replay a graph twice, on the contents of two problems in the same operands."""
    title = "forward captured" if forward_alone else "forward and backward captured"
    incoming = Incoming("none", (), problem.ones) if forward_alone else problem.usual
    expected = [Expectation.of(p, subject, incoming) for p in (problem, sibling)]
    operands = {name: operand.clone() for name, operand in problem.operands.items()}
    call = Call(operands, incoming.wrt, incoming.grad_output)
    with recordings(subject, [call]) as (recording,):
        for number, expectation in enumerate(reversed(expected), 1):
            answer = subject.replay(replace(recording, contents=expectation.problem.operands))
            expectation.judge(answer, f"{title}, replay {number}, new contents", worst)


def _at_once(problem: Problem, sibling: Problem, subject: Subject, worst: Worst) -> None:
    """Replay two graphs at once, then one of them beside plain calls."""
    expected = [Expectation.of(p, subject, p.usual) for p in (problem, sibling)]
    calls = [e.problem.call(e.incoming) for e in expected]
    times = rounds(problem.case)
    with recordings(subject, calls) as (one, two):
        for title, beside in (
            ("two graphs at once", two),
            ("a graph beside plain calls", calls[1]),
        ):
            answers = subject.on_streams([[one] * times, [beside] * times])
            judge_each(expected, answers, f"{title}, number", worst)


CHECK = Check(
    "graphs",
    "forward_backward",
    _run,
    needs_gpu=True,
    held=lambda case: Held(operands=3, results=4 + 2 * rounds(case), streams=4),
)
