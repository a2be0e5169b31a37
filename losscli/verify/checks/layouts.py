"""Operands that lie otherwise in memory, or are broadcast otherwise.

Catches: operands taken for contiguous, a storage offset that is ignored, vectors loaded from
addresses that are not aligned for them, strides of one operand used for the other, gaps that are
read, the wrong axis of a broadcast, gradients that are not summed over it, or summed over the
wrong one. The shape is never square, so that a wrong axis cannot fit. What lies in gaps and before
offsets is NaN: who reads it has it in the result. One size is enough for all of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

from torch import Tensor

from losscli.cases import Case
from losscli.inputs import make_inputs
from losscli.losses import Shape
from losscli.results import VerifyResult
from losscli.verify.checks.check import Check, Tally
from losscli.verify.problem import Problem
from losscli.verify.subject import Subject

ROWS, COLUMNS = 67, 301
"""At most: more than a tile of a GPU, of no whole vectors."""

Place = Callable[[Tensor], Tensor]
"""Give values another layout; ``expanded`` gives up most of them as well."""


def _as_is(values: Tensor) -> Tensor:
    return values


def _transposed(values: Tensor) -> Tensor:
    return values.t().contiguous().t()


def _every_second_column(values: Tensor) -> Tensor:
    rows, columns = values.shape
    wide = values.new_full((rows, 2 * columns), math.nan)[:, ::2]
    return wide.copy_(values)


def _cut_out(values: Tensor) -> Tensor:
    rows, columns = values.shape
    return values.new_full((rows + 2, columns + 7), math.nan)[1:-1, 3:-4].copy_(values)


def _expanded_rows(values: Tensor) -> Tensor:
    return values[:1].expand(values.shape)


def _expanded_columns(values: Tensor) -> Tensor:
    return values[:, :1].expand(values.shape)


def _offset(values: Tensor, by: int) -> Tensor:
    flat = values.new_full((values.numel() + by,), math.nan)
    return flat[by:].view(values.shape).copy_(values)


STORED: dict[str, tuple[Place, Place]] = {
    "both operands transposed": (_transposed, _transposed),
    "input transposed": (_transposed, _as_is),
    "target transposed": (_as_is, _transposed),
    "every second column of a wider input": (_every_second_column, _as_is),
    "every second column of wider operands": (_every_second_column, _every_second_column),
    "operands cut out of larger ones": (_cut_out, _cut_out),
    "one row expanded to the input": (_expanded_rows, _as_is),
    "one column expanded to the target": (_as_is, _expanded_columns),
    "input one element off its alignment": (partial(_offset, by=1), _as_is),
    "operands 1 and 3 elements off their alignment": (
        partial(_offset, by=1),
        partial(_offset, by=3),
    ),
}
"""How input and target of one shape lie."""

BROADCAST: dict[str, tuple[Callable[[int, int], Shape], Callable[[int, int], Shape]]] = {
    "target of one row": (lambda rows, columns: (rows, columns), lambda _, columns: (columns,)),
    "target of one column": (lambda rows, columns: (rows, columns), lambda rows, _: (rows, 1)),
    "target of one number": (lambda rows, columns: (rows, columns), lambda *_: ()),
    "input of one row": (lambda _, columns: (columns,), lambda rows, columns: (rows, columns)),
    "input of one column, target of one row": (
        lambda rows, _: (rows, 1),
        lambda _, columns: (columns,),
    ),
}
"""Shapes of input and target, from rows and columns."""


def layout_case(case: Case) -> Case:
    """Return the case with a small shape of two dimensions that differ, and values all over."""
    shape = (37, 101)
    if len(case.shape) == 2 and min(case.shape) > 1:
        rows, columns = min(case.shape[0], ROWS), min(case.shape[1], COLUMNS)
        shape = (rows, columns if columns != rows else columns - 1)
    return case.reshaped(shape, shape, distribution="normal")


def _run(problem: Problem, subject: Subject) -> Iterator[VerifyResult]:
    """Judge the loss and both gradients of each layout; the worst counts, and all are named."""
    tally = Tally()
    for name, variant in _variants(problem):
        fresh = subject.again()
        for incoming in dict.fromkeys((variant.usual, variant.others[-1])):
            answer = fresh.answer(variant.call(incoming))
            if incoming is variant.usual:
                tally.add(name, "loss", variant.judge_loss(answer.loss))
            for operand in incoming.wrt:
                judged = variant.judge_gradient(operand, answer.gradients[operand], incoming)
                tally.add(name, f"{operand} gradient for {incoming.name}", judged)
    yield tally.result(problem, subject.name, "layouts")


def _variants(problem: Problem) -> Iterator[tuple[str, Problem]]:
    """Yield each layout by its name."""
    for name, places in STORED.items():
        yield name, problem.variant(name, partial(_stored, problem, *places))
    for name, shapes in BROADCAST.items():
        yield name, problem.variant(name, partial(_broadcast, problem, *shapes))


def _stored(problem: Problem, place_input: Place, place_target: Place) -> Problem:
    operands = place_input(problem.input), place_target(problem.target)
    return Problem(problem.case, *operands, problem.loosened)


def _broadcast(
    problem: Problem, input: Callable[[int, int], Shape], target: Callable[[int, int], Shape]
) -> Problem:
    rows, columns = problem.case.shape
    case = problem.case.reshaped(input(rows, columns), target(rows, columns))
    return Problem(case, *make_inputs(case), problem.loosened)


CHECK = Check(
    "layouts",
    "forward_backward",
    "operands taken for contiguous or aligned, a wrong axis of a broadcast",
    _run,
    adapt=layout_case,
    once=True,
)
