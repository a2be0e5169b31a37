"""Checks that an implementation reads and writes only its own memory.

Catches: overwritten inputs, elements read or written beyond the ends of a buffer, outputs that are
not fully written or that share memory with the operands or with the outputs of an earlier call, a
result that is cached by address, memory that is kept from call to call.

The operands lie between bands of NaN, then of large values: the result has to be that of plain
operands, and bands and operands have to stay unchanged. Before other calls, all bytes of an earlier
result, and blocks of its size and of the size of scratch memory, are filled with a pattern and
freed, so that an allocator hands them out again: the result has to be the same for two patterns.
Then the same operands get new contents, and the oracle judges that result. Each other result has to
equal plain calls: bitwise if the implementation is deterministic, otherwise within the tolerances
of the oracle. Last, a hundred calls on operands of some ten thousand elements may not take more
memory each time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from msgspec import structs
from torch import Tensor

from losscli.implementations.call_data import Call
from losscli.implementations.inspection import GROWTH_CALLS
from losscli.implementations.subject import Subject
from losscli.runs.records import FAIL, VerifyResult
from losscli.truth.inputs import NO_CLASS
from losscli.truth.problem import Problem
from losscli.truth.tolerances import Verdict
from losscli.truth.worst import Worst
from losscli.units import format_bytes
from losscli.verify.checks.check import Check
from losscli.verify.checks.expectation import Expectation, judge, same_bits
from losscli.verify.memory_plan import Held

BAND = 4096
"""Elements of a band: more than what a block of threads may read at once beyond an end, and a
multiple of every alignment."""
FILLS = {"NaN": math.nan, "large values": 4096.0}
"""Two, because a comparison may drop NaN."""
PATTERNS = (0xFF, 0x3F)
"""Bytes of poison: NaN in every dtype, and an ordinary number in every dtype."""
GROWTH_SHAPE = (31, 1021)
"""Below the 32,768 elements from which PyTorch wakes its threads, a hundred times over."""


@dataclass(frozen=True)
class _Guarded:
    """Values in the middle of a larger buffer."""

    values: Tensor
    view: Tensor
    whole: Tensor
    fill: float

    @classmethod
    def around(cls, values: Tensor, fill: float) -> _Guarded:
        """Copy values between two bands; beside class numbers there are none."""
        fill = fill if values.is_floating_point() else NO_CLASS
        whole = values.new_full((values.numel() + 2 * BAND,), fill)
        view = whole[BAND : BAND + values.numel()].view(values.shape)
        view.copy_(values)
        return cls(values, view, whole, fill)

    def changed(self) -> str:
        """Describe the first change of the values or bands; empty if there is none."""
        if not same_bits(self.values, self.view):
            return f"was overwritten{_where(self.view, self.values)}"
        for name, band in (("before", self.whole[:BAND]), ("after", self.whole[-BAND:])):
            due = torch.full_like(band, self.fill)
            if not same_bits(band, due):
                return f"is where memory {name} it was overwritten{_where(band, due)}"
        return ""


def _where(now: Tensor, before: Tensor) -> str:
    """Name the first element that differs."""
    differs = (now != before).flatten()
    if not differs.any():
        return ""
    place = int(differs.int().argmax())
    index = [int(i) for i in torch.unravel_index(torch.tensor(place), now.shape)]
    was, got = float(before.flatten()[place]), float(now.flatten()[place])
    return f": expected {was:.9g}, got {got:.9g} at {index}"


def _run(problem: Problem, subject: Subject) -> Iterator[VerifyResult]:
    """Run each part of the check; the worst verdict counts."""
    worst = Worst()
    # Copies throughout: an implementation that overwrites operands does not affect others.
    own = replace(problem, operands={n: each.clone() for n, each in problem.operands.items()})
    expected = replace(Expectation.of(own, subject, problem.usual), problem=problem)
    for name in FILLS:
        _between_bands(expected, subject, name, worst)
    call = Call(own.operands, problem.usual.wrt, problem.usual.grad_output)
    if worst.verdict.status != FAIL and _fresh(subject, call, worst):
        _poisoned(expected, subject, call, worst)
        _renewed(expected, subject, call, worst)
        _growth(problem, subject, worst)
    yield worst.result(problem, subject.name, "memory")


def _between_bands(expected: Expectation, subject: Subject, name: str, worst: Worst) -> None:
    """Judge a call on operands between bands, and the operands and bands after it."""
    problem = expected.problem
    guarded = {
        operand: _Guarded.around(values, FILLS[name])
        for operand, values in problem.operands.items()
    }
    views = {operand: guard.view for operand, guard in guarded.items()}
    call = Call(views, expected.incoming.wrt, expected.incoming.grad_output)
    answer = subject.answer(call)
    for operand, guard in guarded.items():
        changed = guard.changed()
        if changed:
            worst.add(Verdict(FAIL, changed), None, f"{operand} ")
    expected.judge(answer, f"operands between {name}", worst)


def _fresh(subject: Subject, call: Call, worst: Worst) -> bool:
    """Judge whether results have memory of their own."""
    shared = subject.shared_memory(call)
    if shared is None:
        return True
    reason = f"expected memory of its own, but it shares that of {shared[1]}"
    worst.add(Verdict(FAIL, reason), None, f"{shared[0]}: ")
    return False


def _poisoned(expected: Expectation, subject: Subject, call: Call, worst: Worst) -> None:
    """Judge calls that are handed memory full of one pattern, then of another."""
    for pattern in PATTERNS:
        answer = subject.poisoned(call, pattern)
        expected.judge(answer, f"memory full of bytes 0x{pattern:02x} before the call", worst)


def _renewed(expected: Expectation, subject: Subject, call: Call, worst: Worst) -> None:
    """Judge calls on new contents in the same operands, and on the first ones again."""
    problem = expected.problem
    other = problem.variant("sibling", problem.sibling)
    incoming = other.usual
    subject.answer(call)
    answer = subject.answer(
        structs.replace(call, grad_output=incoming.grad_output, contents=other.operands)
    )
    for name, got in answer.items().items():
        judge(other, incoming, name, got, "new contents in the same operands", worst)
    answer = subject.answer(structs.replace(call, contents=problem.operands))
    expected.judge(answer, "the first contents again in the same operands", worst)


def _growth(problem: Problem, subject: Subject, worst: Worst) -> None:
    """Judge whether calls take more memory each time."""
    case = problem.case.reshaped(GROWTH_SHAPE)
    own = problem.variant("growth", lambda: Problem.of(case, problem.loosened))
    grown = subject.again().growth(own.call(own.usual))
    if not grown:
        return
    taken = f"{GROWTH_CALLS} more calls took {format_bytes(grown)} more"
    reason = f"expected no memory growth, but {taken}"
    worst.add(
        Verdict(FAIL, f"{reason}, on operands of {format_bytes(own.prediction.nbytes)}"), None, ""
    )


CHECK = Check(
    "memory",
    "forward_backward",
    _run,
    once=True,
    held=lambda case: Held(operands=3, results=3),
)
