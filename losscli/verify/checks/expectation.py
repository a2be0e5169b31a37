"""The results of plain calls, with which checks compare other ways of calling.

Bitwise, where plain runs agree bitwise; else under the tolerances of the oracle, as a sum taken in
another order each time has to be. Three runs tell as a rule; where another way of running gives
other bits, twenty more have to, for by chance an order may come three times. A sum that is right by
the oracle is warned of and not failed: atomic additions may come in one order until other work runs
beside them, which on a CPU may be that of any process. Who promises one order is failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from losscli.implementations.call_data import Answer
from losscli.implementations.subject import Subject
from losscli.runs.records import FAIL, PASS, WARN
from losscli.truth.blocks import blocks
from losscli.truth.distances import Errors, compare
from losscli.truth.fingerprint import bits
from losscli.truth.oracle import Truth
from losscli.truth.problem import Incoming, Problem
from losscli.truth.tolerances import Verdict, describe
from losscli.truth.worst import Worst

_RUNS = 3
_MORE_RUNS = 20
_BLOCK_ELEMENTS = 2**24
"""Compared at once: the temporaries stay below 16 MiB, and 2^30 elements take 64 looks."""


@dataclass(frozen=True)
class Expectation:
    """What a subject answers on the default stream."""

    problem: Problem
    subject: Subject
    incoming: Incoming
    answer: Answer
    steady: bool
    """Whether a few runs give the same bits."""

    @classmethod
    def of(cls, problem: Problem, subject: Subject, incoming: Incoming) -> Expectation:
        """Run a subject a few times."""
        call = problem.call(incoming)
        first = subject.answer(call)
        steady = all(not differing(first, subject.answer(call)) for _ in range(_RUNS - 1))
        return cls(problem, subject, incoming, first, steady)

    @cached_property
    def always(self) -> bool:
        """Whether many runs give the same bits."""
        call = self.problem.call(self.incoming)
        runs = range(_MORE_RUNS if self.steady else 0)
        return self.steady and all(
            not differing(self.answer, self.subject.answer(call)) for _ in runs
        )

    def judge(self, answer: Answer, where: str, worst: Worst, *, beside: bool = False) -> None:
        """Judge an answer to the same question that was had in another way.

        ``beside``: other work ran at the same time, which may change the order of a sum. The cores
        of a CPU are shared at all times.
        """
        shared = beside or self.problem.case.device == "cpu"
        for name in differing(self.answer, answer):
            want, got = self.answer.items().get(name), answer.items()[name]
            if want is None or got is None or want.shape != got.shape or not self.always:
                judge(self.problem, self.incoming, name, got, where, worst)
                continue
            reason = f"{describe(distance(want, got))}; plain runs give the same bits each time"
            by_order = shared and self._may_change_order(want) and self._is_right(name, got)
            worst.add(Verdict(WARN if by_order else FAIL, reason), None, f"{where}, {name}: ")
        worst.add(Verdict(PASS), None, "")

    def _may_change_order(self, part: Tensor) -> bool:
        """Tell whether a part of an answer consists of sums without a promised order."""
        elementwise = part.shape == self.problem.oracle.shape
        return not elementwise and not self.subject.implementation.fixed_order

    def _is_right(self, name: str, part: Tensor) -> bool:
        """Tell whether a part of an answer passes by the oracle."""
        worst = Worst()
        judge(self.problem, self.incoming, name, part, "", worst)
        return worst.verdict.status == PASS


def judge_each(
    expected: Sequence[Expectation], answers: Sequence[Sequence[Answer]], where: str, worst: Worst
) -> None:
    """Judge all answers that each expectation met at the same time, which ``where`` numbers."""
    for expectation, own in zip(expected, answers, strict=True):
        for number, answer in enumerate(own, 1):
            expectation.judge(answer, f"{where} {number}", worst, beside=True)


def judge(
    problem: Problem, incoming: Incoming, name: str, got: Tensor | None, where: str, worst: Worst
) -> None:
    """Judge a part of an answer by the oracle."""
    if name == "loss":
        worst.add(*problem.judge_loss(got), f"{where}, loss: ")
        return
    for operand in incoming.wrt:
        if name == f"{operand} gradient":
            worst.add(*problem.judge_gradient(operand, got, incoming), f"{where}, {name}: ")


def differing(one: Answer, other: Answer) -> list[str]:
    """Name what is not bitwise the same in two answers to one question."""
    others = other.items()
    return [name for name, value in one.items().items() if not same_bits(value, others.get(name))]


def same_bits(one: Tensor | None, other: Tensor | None) -> bool:
    """Tell whether two results are the same, bit for bit; NaN is itself."""
    if one is None or other is None:
        return one is other
    if (one.shape, one.dtype, one.device) != (other.shape, other.dtype, other.device):
        return False
    return all(
        torch.equal(bits(one[block]), bits(other[block]))
        for block in blocks(one.shape, _BLOCK_ELEMENTS)
    )


def distance(want: Tensor, got: Tensor) -> Errors:
    """Measure how far a result lies from another."""
    return compare(got, (Truth(block, want[block].double()) for block in blocks(want.shape)))
