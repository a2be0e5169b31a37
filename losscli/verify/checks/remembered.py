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
from losscli.verify.checks.check import Cost, Tally, check
from losscli.verify.checks.plain_calls import PlainCalls
from losscli.verify.geometry.element import small_case
from losscli.verify.memory_plan import Held

LATER = 24
"""Calls whose answers are read when all are done: more than a ring of buffers has."""


@check(
    place=300,
    facet="value",
    catches="answers found again by address, by elements or by a checksum; a part that is kept "
    "while another operand changes; results that a later call overwrites",
    advice="Compute every call from all of its operands, on any thread, into memory that no later "
    "call writes.",
    cost=Cost.QUICK,
    adapt=small_case,
    held=lambda case: Held(operands=4, results=2 + LATER),
    needs_gradient=False,
)
def remembered(problem: Problem, subject: Subject, tally: Tally) -> None:
    """Check that no answer is that of an earlier call.

    New contents in the same operands: in one of them, in one element, in another order; 24 calls in
    another thread, whose results are read after the last and have to equal plain calls.
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
