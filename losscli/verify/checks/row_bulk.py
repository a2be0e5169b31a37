"""Checks gradients of rows that are larger than the caches.

Catches: cache lines that are not written where stores bypass the caches. Without a reduction the
operands are a few dozen rows, repeated: so each repeat of the losses and of the gradients of what
the rows do not share has to equal the first one, or be right by the oracle. The call before has
other contents, so that no memory holds the results already.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from losscli.cases import Case
from losscli.implementations.call_data import Call, Operands
from losscli.implementations.subject import Subject
from losscli.losses import ROW, RowSpec
from losscli.runs.records import VerifyResult
from losscli.truth.fingerprint import bits
from losscli.truth.problem import Problem
from losscli.truth.worst import Worst
from losscli.verify.checks.bulk import BYTES
from losscli.verify.checks.check import Check
from losscli.verify.checks.expectation import judge

PERIOD = (67, 509)
"""The rows that are repeated: primes, so that rows and repeats begin at any place of a vector."""
_OTHER = 11
"""Rows by which the prediction of the call before lies off."""
_MOST_JUDGED = 16
"""Repeats that differ and are held against the oracle."""


def bulk_case(case: Case) -> Case:
    """Return the case of what is repeated."""
    return case.reshaped(PERIOD, distribution="normal", scale=1.0)


def _run(problem: Problem, subject: Subject) -> Iterator[VerifyResult]:
    """Judge the repeats of the losses and of the gradients; the worst counts."""
    spec = problem.case.spec
    assert isinstance(spec, RowSpec)
    worst, first = Worst(), spec.names[0]
    rows = int(spec.values > 1)  # the dimension of the rows in a loss
    wrt = tuple(name for name in problem.wrt if not problem.oracle.is_summed(name))
    incoming = problem.usual
    count = BYTES // problem.prediction.nbytes + 1
    operands: Operands = {
        name: values if problem.oracle.is_summed(name) else _repeated(values, count)
        for name, values in problem.operands.items()
    }
    g = _repeated(incoming.grad_output, count, rows)
    subject.answer(Call({**operands, first: operands[first].roll(_OTHER, 0)}, wrt, g))
    answer = subject.answer(Call(operands, wrt, g))
    for name, got in answer.items().items():
        due = g.shape if name == "loss" else operands[name.removesuffix(" gradient")].shape
        if got is None or got.shape != due:
            judge(problem, incoming, name, got, "repeated", worst)
            continue
        dimension = rows if name == "loss" else 0
        repeats = got.unflatten(dimension, (count, -1)).movedim(dimension, 0)
        same = bits(repeats.reshape(count, -1))
        differ = (same != same[0]).any(1).nonzero().flatten().tolist()
        for number in [0, *differ[:_MOST_JUDGED]]:
            title = f"repeat {number} of {count}"
            judge(problem, incoming, name, repeats[number], title, worst)
    yield worst.result(problem, subject.name, CHECK.name)


def _repeated(values: Tensor, count: int, dimension: int = 0) -> Tensor:
    """Return as many repeats of rows, one behind the other."""
    return torch.cat([values] * count, dimension)


CHECK = Check(
    "row_bulk",
    "forward_backward",
    _run,
    adapt=bulk_case,
    once=True,
    asks=lambda case: case.reduction == "none",
    needs="losses without a reduction",
    units=(ROW,),
)
