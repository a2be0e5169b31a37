"""The results of plain calls, with which checks compare other ways of calling.

If three plain runs agree bitwise, and no library chooses the order of sums, other ways must give
the same bits; else the oracle judges. If other bits appear, twenty more plain runs must agree. A
sum that the oracle accepts is then a warning, unless a fixed order is promised: atomic additions
may keep one order until other work runs at the same time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

from losscli.implementations.local import Operands
from losscli.implementations.requests import Answer, Call
from losscli.implementations.subject import Subject
from losscli.runs.records import FAIL, PASS, WARN
from losscli.truth.distances import compare, truths_of
from losscli.truth.fingerprint import same_bits
from losscli.truth.problem import Problem
from losscli.truth.setup import Incoming
from losscli.truth.tolerances import Outcome, describe
from losscli.verify.checks.check import Tally


@dataclass(frozen=True)
class PlainCalls:
    """A subject's answer to plain calls on the default stream."""

    problem: Problem
    subject: Subject
    incoming: Incoming
    answer: Answer
    steady: bool
    """Whether a few runs are bitwise equal, and no library chooses the order of sums."""

    @classmethod
    def of(cls, problem: Problem, subject: Subject, incoming: Incoming) -> Self:
        """Call a subject a few times."""
        first = cls(problem, subject, incoming, subject.send(problem.call(incoming)), steady=False)
        return replace(first, steady=not problem.chooses_order and first._repeats(2))

    @cached_property
    def always(self) -> bool:
        """Whether many runs are bitwise equal."""
        return self.steady and self._repeats(20)

    def call(self, operands: Operands | None = None) -> Call:
        """Return the call; given ``operands`` get the problem's contents first."""
        return self.problem.call(self.incoming, operands, operands and self.problem.operands)

    def _repeats(self, runs: int) -> bool:
        return not any(differing(self.answer, self.subject.send(self.call())) for _ in range(runs))

    def judge(self, answer: Answer, where: str, tally: Tally, *, beside: bool = False) -> None:
        """Judge another way of calling; work that ran ``beside`` it may reorder a sum."""
        shared = beside or self.problem.case.device == "cpu"
        for part in differing(self.answer, answer):
            want, got = self.answer.items().get(part), answer.items()[part]
            if want is None or got is None or want.shape != got.shape or not self.always:
                tally.judge_part(self.problem, self.incoming, part, got, where)
                continue
            off = describe(compare(got, truths_of(want)))
            reason = f"{off}; plain runs are bitwise equal each time"
            is_sum = want.shape != self.problem.oracle.shape
            any_order = shared and is_sum and not self.subject.implementation.fixed_order
            outcome, _ = self.problem.judge(part, got, self.incoming)
            by_order = any_order and outcome.status == PASS
            tally.add(Outcome(WARN if by_order else FAIL, reason), None, f"{where}, {part}: ")


def judge_each(
    plain: Sequence[PlainCalls], answers: Sequence[Sequence[Answer]], where: str, tally: Tally
) -> None:
    """Judge the answers of simultaneous calls; ``where`` gets their numbers."""
    for each, own in zip(plain, answers, strict=True):
        for number, answer in enumerate(own, 1):
            each.judge(answer, f"{where} {number}", tally, beside=True)


def differing(one: Answer, other: Answer) -> list[str]:
    """Name the parts of two answers that are not bitwise equal."""
    others = other.items()
    return [name for name, value in one.items().items() if not same_bits(value, others.get(name))]
