"""The check of answers that are kept from call to call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

from losscli.implementations.local import Operands
from losscli.implementations.requests import Call, InThread
from losscli.implementations.subject import Subject
from losscli.losses.domain import DISTINCT_CLASSES
from losscli.runs.records import FAIL
from losscli.truth.distances import index_of
from losscli.truth.problem import Problem
from losscli.verify.checks.check import Tally, check, small_case
from losscli.verify.checks.plain_calls import PlainCalls
from losscli.verify.memory_plan import Held

LATER = 24
"""Calls whose answers are read when all are done: more than a ring of buffers has."""


@check(adapt=small_case, held=lambda case: Held(operands=4, results=2 + LATER))
def remembered(problem: Problem, subject: Subject, tally: Tally) -> None:
    """Check that no answer is that of an earlier call.

    Catches: answers that are found again by address, by identity, by some elements, by a checksum
    or by comparing one operand with a kept copy; a part that is computed of one operand and kept
    while another changes; results that a later call overwrites; answers that another thread does
    not get.

    The same operands get new contents: one operand after the other, a single element of each, at a
    place that follows from the seed, and the prediction in another order, which has the same sum.
    The oracle judges each answer. Then a thread of its own makes 24 calls on two contents in turn;
    their answers, read when all are done, have to equal plain calls: bitwise if the implementation
    is deterministic, otherwise within the tolerances of the oracle.
    """
    operands = {name: operand.clone() for name, operand in problem.operands.items()}
    incoming = problem.usual
    for title, contents in _changes(problem):
        call = Call(operands, incoming.wrt, incoming.grad_output, contents)
        tally.judge_answer(problem.like(contents), incoming, subject.send(call), title)
        if tally.outcome.status == FAIL:
            return
    others = problem, problem.variant("sibling", problem.sibling)
    plain = []
    for each in others:
        known = PlainCalls.of(each, subject, each.usual)
        # What a later call overwrites must not be what its answer is compared with.
        plain.append(replace(known, answer=known.answer.copy()))
    calls = [
        Call(operands, each.incoming.wrt, each.incoming.grad_output, each.problem.operands)
        for each in plain * (LATER // len(plain))
    ]
    for number, answer in enumerate(subject.send(InThread(calls))):
        where = f"call {number + 1} of {LATER} in another thread, read after the last"
        plain[number % len(plain)].judge(answer, where, tally)


def _changes(problem: Problem) -> Iterator[tuple[str, Operands]]:
    """Yield what the operands have in successive calls, and what is new about it."""
    first, other = problem.operands, problem.variant("sibling", problem.sibling).operands
    yield "at first", first
    for name in first:
        yield f"new contents in the {name} alone", {**first, name: other[name]}
    places = Random(problem.case.seed)
    for name, values in first.items():
        is_distinct = problem.case.spec.domains[name] == DISTINCT_CLASSES
        numbers = [places.randrange(values.numel()) for _ in range(LATER if values.numel() else 0)]
        for place in (index_of(number, values.shape) for number in numbers):
            beside = values[place[:-1]] if is_distinct else values[place]
            if (beside != other[name][place]).all():
                changed = values.clone()
                changed[place] = other[name][place]
                yield f"one new element in the {name}, at {[*place]}", {**first, name: changed}
                break
    name = next(iter(first))
    if first[name].dim():
        yield f"the {name} in another order", {**first, name: first[name].flip(-1)}
    yield "the first contents again", first
