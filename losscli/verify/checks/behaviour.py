"""Checks of side effects: on the process, later calls, streams and graphs."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from random import Random

import torch
from msgspec.structs import replace

from losscli.cases.case import Case
from losscli.implementations.gpu_requests import OnStreams
from losscli.implementations.local import Operands
from losscli.implementations.process_state import reason_of
from losscli.implementations.requests import Accumulate, Forward, InThread
from losscli.implementations.subject import Subject, recordings, watch
from losscli.losses.domain import DISTINCT_CLASSES
from losscli.machine.devices import core_count
from losscli.runs.records import FAIL, PASS, WARN, VerifyResult
from losscli.truth.distances import compare, index_of, truths_of
from losscli.truth.problem import Problem
from losscli.truth.setup import Incoming
from losscli.truth.tolerances import Outcome
from losscli.verify.checks.check import NO_ORDER, Cost, Tally, check
from losscli.verify.checks.plain_calls import PlainCalls, differing, judge_each
from losscli.verify.geometry.element import small_case
from losscli.verify.needed_memory import Held


@check(
    place=320,
    facet="global_state",
    catches="a call that changes global state for later calls",
    advice="Restore every flag, seed, thread count and environment variable that you set.",
    formerly=("left_behind",),
    cost=Cost.FEW,
    adapt=small_case,
)
def global_state(problem: Problem, subject: Subject, tally: Tally) -> Iterator[VerifyResult]:
    """Check that a call changes no state of the process.

    Threads, default dtype and device, random states, grad mode, autocast, flush-denormal mode,
    flags of TF32 and determinism, the environment, signal handlers and functions of torch and
    Python, before and after binding, forward and backward. Every other check compares and restores
    them too.
    """
    call = problem.call(problem.usual)
    none = {name: torch.zeros_like(problem.operands[name]) for name in call.wrt}
    steps: dict[str, Callable[[], object]] = {
        "binding the loss": subject.again,
        "forward": lambda: subject.send(Forward(problem.operands)),
        "forward and backward": lambda: subject.send(call),
        # No grad mode is set around it, so that one which the call sets shows.
        "a training step": lambda: subject.send(Accumulate(call, none, 1)),
    }
    result = VerifyResult(problem.case, subject.name, "global_state", PASS)
    for name, step in steps.items():
        if changed := watch(subject, step):  # the first counts
            reason = reason_of(changed)
            result = replace(result, status=FAIL, reason=f"{name} {reason}", code=reason.code)
            break
    yield result


RUNS = 20
PART = 2**14
"""The fewest elements that one thread of a CPU kernel takes."""
COLUMNS = 1001
"""A row of no whole vectors."""


def _threaded_case(case: Case) -> Case:
    """Return the case; on a CPU with enough elements for every thread."""
    parts = min(4 * core_count(), 64)  # CPU kernels make no more
    if case.device != "cpu" or case.elements >= parts * PART:
        return case
    return case.reshaped((parts * PART // COLUMNS, COLUMNS))


@check(
    place=340,
    facet="determinism",
    catches="atomics, races",
    advice="Sum in an order that does not depend on timing: no floating-point atomics.",
    cost=Cost.FEW,
    adapt=_threaded_case,
    mean_for_sum=True,
    held=lambda case: Held(results=2),
    needs_gradient=False,
)
def determinism(problem: Problem, subject: Subject, tally: Tally) -> None:
    """Check that repeated calls are bitwise equal.

    Twenty runs on the largest case. If they differ within the tolerances, the check warns.

    More blocks and threads allow more orders of a sum, so on a CPU every thread gets several parts.
    """
    off: dict[str, float] = {}
    incoming = problem.usual
    first = subject.send(problem.call(incoming))
    for number in range(2, RUNS + 1):
        answer = subject.send(problem.call(incoming))
        for name in differing(first, answer):
            want, got = first.items()[name], answer.items()[name]
            if want is None or got is None or want.shape != got.shape:
                tally.fail(f"run {number} returned a {name} of another shape, or none")
                continue
            off[name] = max(off.get(name, 0.0), compare(got, truths_of(want)).ulp)
            tally.judge_part(problem, incoming, name, got, f"run {number} differs from run 1")
    if off and tally.outcome.status != FAIL:
        parts = " and ".join(f"the {name} by up to {ulp:.3g} ulp" for name, ulp in off.items())
        reason = f"expected bitwise equal results in {RUNS} runs, but they differ in {parts}"
        cause = "the order of a sum changes from run to run, as with atomics"
        tally.add(Outcome(WARN, f"{reason}: {cause}"))


def rounds(case: Case) -> int:
    """Return how many launches each stream gets; fewer if their results are large."""
    return 8 if case.elements <= 2**22 else 2 if case.elements <= 2**28 else 1


@check(
    place=350,
    facet="streams_and_graphs",
    catches="launches on the default stream, shared scratch memory",
    advice="Launch on torch.cuda.current_stream(), and keep no scratch memory between calls.",
    once=False,
    needs_gpu=True,
    one_process=NO_ORDER,
    held=lambda case: Held(operands=4, results=2 + 2 * rounds(case), streams=2),
    needs_gradient=False,
)
def streams(problem: Problem, subject: Subject, tally: Tally) -> None:
    """Check calls on other streams than the default one.

    On a GPU: a side stream on which the operands are written just before the call, then two streams
    at once with two inputs.
    """
    here, there = problem, problem.sibling()
    plain = [PlainCalls.of(p, subject, p.usual) for p in (here, there)]
    # A kernel that runs too early finds the contents of the other problem.
    stale = [other.copies() for other in (there, here)]
    calls = [each.call(buffers) for buffers, each in zip(stale, plain, strict=True)]
    (answers,) = subject.send(OnStreams([[calls[0]]]))
    plain[0].judge(answers.pop(), "on a side stream", tally)
    both = subject.send(OnStreams([[call] * rounds(problem.case) for call in calls]))
    judge_each(plain, both, "two streams at once, launch", tally)


@check(
    place=360,
    facet="streams_and_graphs",
    catches="host synchronisation, results cached by address, counters that are not reset",
    advice="Do not synchronise, allocate outside of PyTorch or read values on the host.",
    cost=Cost.QUICK,
    once=False,
    needs_gpu=True,
    one_process=NO_ORDER,
    held=lambda case: Held(operands=3, results=4 + 2 * rounds(case), streams=4),
    needs_gradient=False,
    captures=True,
)
def graphs(problem: Problem, subject: Subject, tally: Tally) -> None:
    """Check calls that a CUDA graph captured.

    On a GPU: forward, and forward with backward, replayed with new contents in the same operands;
    two graphs at once, and one next to plain calls.
    """
    problems = problem, problem.sibling()
    forward = Incoming("none", (), problem.ones)
    for title, incoming in {"forward": forward, "forward and backward": problem.usual}.items():
        _new_contents([PlainCalls.of(p, subject, incoming) for p in problems], title, tally)
    # Two graphs at once, then one of them beside plain calls.
    plain = [PlainCalls.of(p, subject, p.usual) for p in problems]
    calls = [each.call() for each in plain]
    times = rounds(problem.case)
    with recordings(subject, calls) as (one, two):
        for how, beside in (("two graphs at once", two), ("a graph next to plain calls", calls[1])):
            answers = subject.send(OnStreams([[one] * times, [beside] * times]))
            judge_each(plain, answers, f"{how}, number", tally)


def _new_contents(plain: Sequence[PlainCalls], title: str, tally: Tally) -> None:
    subject, problem = plain[0].subject, plain[0].problem
    with recordings(subject, [problem.call(plain[0].incoming, problem.copies())]) as (recording,):
        for number, each in enumerate(reversed(plain), 1):
            answer = subject.send(replace(recording, contents=each.problem.operands))
            each.judge(answer, f"{title} captured, replay {number}, new contents", tally)


LATER = 24
"""Calls whose answers are read after the last: more than a ring of buffers has."""


@check(
    place=300,
    facet="value",
    catches="results looked up by address, by elements or by a checksum; a part that is kept "
    "while another operand changes; results that a later call overwrites",
    advice="Compute every call from all of its operands, on any thread, into memory that no later "
    "call overwrites.",
    formerly=("remembered",),
    cost=Cost.QUICK,
    adapt=small_case,
    held=lambda case: Held(operands=4, results=2 + LATER),
    needs_gradient=False,
)
def stale_results(problem: Problem, subject: Subject, tally: Tally) -> None:
    """Check that no result is that of an earlier call.

    New contents in the same operands: in one operand, in one element, in another order. Then 24
    calls in another thread, whose results are read after the last call and have to equal plain
    calls.
    """
    operands = problem.copies()
    incoming = problem.usual
    for title, contents in _changes(problem):
        answer = subject.send(problem.call(incoming, operands, contents))
        tally.judge_answer(problem.like(contents), incoming, answer, title)
        if tally.outcome.status == FAIL:
            return
    both = (problem, problem.variant("sibling", problem.sibling))
    known = (PlainCalls.of(each, subject, each.usual) for each in both)
    # What a later call overwrites must not be what its answer is compared with.
    plain = [dataclasses.replace(each, answer=each.answer.copy()) for each in known]
    calls = [each.call(operands) for each in plain * (LATER // len(plain))]
    for number, answer in enumerate(subject.send(InThread(calls))):
        where = f"call {number + 1} of {LATER} in another thread, read after the last"
        plain[number % len(plain)].judge(answer, where, tally)


def _changes(problem: Problem) -> Iterator[tuple[str, Operands]]:
    """Yield the contents of successive calls, and what is new about them."""
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
