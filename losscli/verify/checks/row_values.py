"""Checks rows whose values need care.

Catches: a maximum that is not subtracted, so that exponentials overflow; rows of minus infinity but
for one class, as masked logits are, that become NaN; a loss of a very confident row that loses all
digits; ties; ignored rows whose loss or gradient is not 0, or which a mean counts; NaN, or none,
where all rows are ignored. The check judges the loss and all gradients, for an incoming gradient of
1 and one other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from losscli.cases import Case
from losscli.implementations.call_data import Operands
from losscli.implementations.caller import Subject
from losscli.losses import CLASS_NUMBERS, ROW
from losscli.losses.row_forms import IGNORE_INDEX
from losscli.runs.records import VerifyResult
from losscli.truth.problem import Problem
from losscli.verify.checks.check import Check, Tally

SHAPE = (12, 131)
"""Odd rows; the planted class goes through all of a vector's lanes."""
LONG = (5, 1031)
"""Rows that kernels walk in several steps; the planted class goes through these."""
CONFIDENT = 30.0
"""A logit so far above the others that they hardly count."""
LARGE = 1e4
"""Of which float32 holds no exponential."""


def values_case(case: Case) -> Case:
    """Return the case with a small shape."""
    return case.reshaped(SHAPE, distribution="normal", scale=1.0)


def _planted_class(logits: Tensor) -> Tensor:
    """Return one class of each row."""
    rows, classes = logits.shape
    step = classes // rows | 1
    return (torch.arange(rows, device=logits.device) * step + 3) % classes


def _with_one(logits: Tensor, one: float) -> Tensor:
    """Return the logits with a number in one class of each row."""
    return logits.scatter(1, _planted_class(logits)[:, None], one)


def _masked(logits: Tensor) -> Tensor:
    return _with_one(torch.full_like(logits, -math.inf), 0.5)


def _partly_masked(logits: Tensor) -> Tensor:
    masked = torch.arange(logits.shape[1], device=logits.device) % 3 == 1
    return logits.masked_fill(masked, -math.inf)


LOGITS: dict[str, Callable[[Tensor], Tensor]] = {
    "one class far above the others": lambda logits: _with_one(logits, CONFIDENT),
    "one class far below the others": lambda logits: _with_one(logits, -CONFIDENT),
    "logits of 1e4": lambda logits: (logits * LARGE).clamp(-3 * LARGE, 3 * LARGE),
    "logits around 1e4": lambda logits: logits + LARGE,
    "logits around -1e4": lambda logits: logits - LARGE,
    "equal logits": torch.zeros_like,
    "a tie of the largest": lambda logits: logits.clamp(max=0.5),
    "rows of -infinity but for one class": _masked,
    "a third of the classes at -infinity": _partly_masked,
}
IGNORED: dict[str, Callable[[Tensor], Tensor]] = {
    "no row ignored": lambda place: place < 0,
    "the first row ignored": lambda place: place == 0,
    "every second row ignored": lambda place: place % 2 == 1,
    "all rows but one ignored": lambda place: place != 7,
    "all rows ignored": lambda place: place >= 0,
}


def _run(problem: Problem, subject: Subject) -> Iterator[VerifyResult]:
    """Judge each kind of rows; the worst counts, and all are named."""
    tally = Tally()
    for name, make in _variants(problem):
        variant = problem.variant(name, make)
        for incoming in dict.fromkeys((variant.usual, variant.others[-1])):
            answer = subject.answer(variant.call(incoming))
            tally.judge(name, variant, incoming, answer, by_incoming=True, any_for_nan=True)
    yield tally.result(problem, subject.name, CHECK.name)


def _variants(problem: Problem) -> Iterator[tuple[str, Callable[[], Problem]]]:
    """Yield each kind of rows by its name."""
    for name, change in LOGITS.items():
        yield name, partial(_changed, problem, change)
        yield f"{name}, long rows", partial(_long, problem, change)
    ignores = IGNORE_INDEX.name in problem.case.params
    for name, where in IGNORED.items() if ignores else ():
        yield name, partial(_ignored, problem, where)


def _changed(problem: Problem, change: Callable[[Tensor], Tensor]) -> Problem:
    """Return the problem with other logits; half the targets are the class that is planted."""
    first = problem.case.spec.names[0]
    logits = problem.operands[first]
    operands: Operands = {**problem.operands, first: change(logits)}
    for operand in problem.case.spec.operands:
        if operand.kind == CLASS_NUMBERS:
            target = operands[operand.name]
            half = torch.arange(len(target), device=target.device) % 2 == 0
            operands[operand.name] = torch.where(half, _planted_class(logits).to(target), target)
    return problem.like(operands)


def _long(problem: Problem, change: Callable[[Tensor], Tensor]) -> Problem:
    """Return the problem with other logits in long rows."""
    return _changed(problem.reshaped(LONG), change)


def _ignored(problem: Problem, where: Callable[[Tensor], Tensor]) -> Problem:
    """Return the problem with some rows ignored, and no others."""
    operands = dict(problem.operands)
    ignored = int(problem.case.params[IGNORE_INDEX.name])
    for operand in problem.case.spec.operands:
        if operand.kind == CLASS_NUMBERS:
            target = operands[operand.name]
            kept = torch.where(target == ignored, 0 if ignored else 1, target)
            place = torch.arange(len(target), device=target.device)
            operands[operand.name] = kept.masked_fill(where(place), ignored)
    return problem.like(operands)


CHECK = Check(
    "row_values",
    "forward_backward",
    "exponentials that overflow, masked and ignored rows, ties",
    _run,
    adapt=values_case,
    once=True,
    units=(ROW,),
)
