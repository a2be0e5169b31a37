"""Checks that repeated calls return the same bits.

Catches: atomics or a race in a sum, a result read before it is finished, memory that is read before
it is written. Twenty runs on the same operands, each with a new loss and new gradients, have to
agree bitwise. An implementation whose runs differ within the tolerances of the oracle gets a
warning with the spread in ULP; beyond them it fails. The check runs on the largest size: the more
blocks and threads share a sum, the more orders are possible. On a CPU a kernel gives a small case
to one thread, so there it runs on one that gives all of them several parts.
"""

from __future__ import annotations

from collections.abc import Iterator

from losscli.cases import Case
from losscli.implementations.subject import Subject
from losscli.machine.devices import core_count
from losscli.runs.records import FAIL, PASS, WARN, VerifyResult
from losscli.truth.problem import Problem
from losscli.truth.tolerances import Verdict
from losscli.truth.worst import Worst
from losscli.verify.checks.check import Check
from losscli.verify.checks.expectation import differing, distance, judge
from losscli.verify.memory_plan import Held

RUNS = 20
PART = 2**14
"""The fewest elements that one thread of a kernel on a CPU takes."""
PARTS_A_THREAD = 4
MOST_PARTS = 64
"""Beyond, kernels on a CPU make larger parts, not more."""
COLUMNS = 1001
"""Of no whole vectors."""


def threaded_case(case: Case) -> Case:
    """Return the case; on a CPU with enough elements for every thread."""
    parts = min(PARTS_A_THREAD * core_count(), MOST_PARTS)
    if case.device != "cpu" or case.elements >= parts * PART:
        return case
    return case.reshaped((parts * PART // COLUMNS, COLUMNS))


def _run(problem: Problem, subject: Subject) -> Iterator[VerifyResult]:
    """Compare each run with the first; judge by the oracle what differs."""
    worst = Worst()
    spread: dict[str, float] = {}
    incoming = problem.usual
    first = subject.answer(problem.call(incoming))
    for number in range(2, RUNS + 1):
        answer = subject.answer(problem.call(incoming))
        for name in differing(first, answer):
            want, got = first.items()[name], answer.items()[name]
            if want is None or got is None or want.shape != got.shape:
                reason = f"run {number} returned a {name} of another shape, or none"
                worst.add(Verdict(FAIL, reason), None, "")
                continue
            errors = distance(want, got)
            spread[name] = max(spread.get(name, 0.0), errors.ulp)
            judge(problem, incoming, name, got, f"run {number} differs from run 1", worst)
    if spread and worst.verdict.status in (PASS, WARN):
        worst.add(Verdict(WARN, _describe(spread)), None, "")
    yield worst.result(problem, subject.name, "determinism")


def _describe(spread: dict[str, float]) -> str:
    """Say by how much runs differ, and what that hints at."""
    parts = " and ".join(f"the {name} by up to {ulp:.3g} ulp" for name, ulp in spread.items())
    return (
        f"expected the same bits in {RUNS} runs, but they differ in {parts}: the order of a sum "
        "changes from run to run, as with atomics"
    )


CHECK = Check(
    "determinism",
    "forward_backward",
    _run,
    adapt=threaded_case,
    once=True,
    mean_for_sum=True,
    held=lambda case: Held(results=2),
)
