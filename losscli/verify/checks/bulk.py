"""Checks results that are larger than the caches.

Catches: cache lines that are not written where stores bypass the caches; on a CPU also by a kernel
for large tensors alone, but what a GPU's kernels treat as large begins beyond this. Without a
reduction the operands are a few thousand elements, repeated: so each repeat of the loss and of the
gradients has to equal the first one, or be right by the oracle. The call before has other contents,
so that no memory holds the results already.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from losscli.cases import Case
from losscli.implementations.call_data import Call
from losscli.implementations.subject import Subject
from losscli.losses import ELEMENT
from losscli.runs.records import VerifyResult
from losscli.truth.fingerprint import bits
from losscli.truth.problem import Problem
from losscli.truth.worst import Worst
from losscli.verify.checks.check import Check
from losscli.verify.checks.expectation import judge

BYTES = 2**25
"""Of a result: more than most second-level caches, and from there on kernels go past them."""
PERIOD = 4099
"""Elements that are repeated: a prime, so that repeats begin at any place of a vector."""
_SHIFT = 64
"""Elements by which the prediction of the call before lies off: as well aligned."""
_MOST_JUDGED = 16
"""Repeats that differ and are held against the oracle."""


def bulk_case(case: Case) -> Case:
    """Return the case of what is repeated."""
    return case.reshaped((PERIOD,), (PERIOD,), distribution="normal")


def _run(problem: Problem, subject: Subject) -> Iterator[VerifyResult]:
    """Judge the repeats of the loss and of all gradients; the worst counts."""
    incoming = problem.usual
    count = BYTES // problem.prediction.element_size() // PERIOD + 1
    operands = {name: _repeated(each, count) for name, each in problem.operands.items()}
    g, first = incoming.grad_output.repeat(count), problem.case.spec.names[0]
    longer = _repeated(problem.prediction, count + 1)
    operands[first] = longer[: len(g)]
    other = {**operands, first: longer[_SHIFT : _SHIFT + len(g)]}
    subject.answer(Call(other, incoming.wrt, g))
    answer = subject.answer(Call(operands, incoming.wrt, g))
    shape = g.shape
    worst = Worst()
    for name, got in answer.items().items():
        if got is None or got.shape != shape:
            judge(problem, incoming, name, got, "repeated", worst)
            continue
        repeats = got.view(-1, PERIOD)
        differ = [] if _repeats(got) else _differing(repeats)
        for number in [0, *differ[:_MOST_JUDGED]]:
            where = f"repeat {number} of {count}"
            judge(problem, incoming, name, repeats[number], where, worst)
    yield worst.result(problem, subject.name, "bulk")


def _repeats(values: Tensor) -> bool:
    """Tell whether each element equals the one a period later, without a tensor of answers."""
    same = bits(values)
    return torch.equal(same[:-PERIOD], same[PERIOD:])


def _differing(repeats: Tensor) -> list[int]:
    """Return the numbers of the repeats that are not the first."""
    found: list[int] = (repeats != repeats[0]).any(dim=1).nonzero().flatten().tolist()
    return found


def _repeated(values: Tensor, count: int) -> Tensor:
    """Return an operand as often; one that meets all elements of the others stays as it is."""
    return values.repeat(count) if values.numel() == PERIOD else values


CHECK = Check(
    "bulk",
    "forward_backward",
    _run,
    adapt=bulk_case,
    once=True,
    asks=lambda case: case.reduction == "none",
    needs="losses without a reduction",
    units=(ELEMENT,),
)
