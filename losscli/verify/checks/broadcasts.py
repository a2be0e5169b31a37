"""Checks broadcasts around the sizes at which kernels switch code paths.

Catches: mistakes at the end of a repeated row inside a tile or a vector, in a row of one vector or
of an odd number of them, in a buffer that is too small for the repeated part, in the place of an
element's repeats at which a tile begins, and in elements that repeat in several dimensions or in
the middle one. Repeated rows have a few vectors, about a tile, and more than a tile; columns have a
few rows, and more than a tile. The check judges the loss and all gradients.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from losscli.implementations.subject import Subject
from losscli.losses import ELEMENT, Shape
from losscli.runs.records import VerifyResult
from losscli.truth.inputs import make_inputs
from losscli.truth.problem import Problem
from losscli.verify.checks.check import Check, Tally
from losscli.verify.checks.sizes import sizes_case

Shapes = tuple[Shape, Shape]

_ROWS: list[Shapes] = [
    ((rows, columns), (columns,))
    for rows, columns in (
        (100, 2),
        (100, 4),
        (100, 8),
        (80, 12),
        (40, 24),
        (5, 1023),
        (5, 1024),
        (5, 1025),
        (5, 1500),
        (3, 2048),
        (3, 4099),
        (3, 4100),
        (2, 8195),
    )
]
_COLUMNS: list[Shapes] = [
    ((rows, columns), (rows, 1)) for rows, columns in ((100, 3), (33, 64), (3, 1500))
]
_SEVERAL: list[Shapes] = [
    ((1100, 7, 9), (7, 1)),
    ((5, 1), (40, 5, 7)),
    ((40, 5, 7), (40, 1, 1)),
    ((40, 5, 7), (5, 7)),
    ((40, 5, 7), (40, 1, 7)),
]
_ON_A_GPU: list[Shapes] = [((2100, 300), (2100, 1)), ((2100, 300), (300,))]
"""More than the blocks that a GPU holds at a time take at once; a CPU takes a while for them."""


def _run(problem: Problem, subject: Subject) -> Iterator[VerifyResult]:
    """Judge the loss and all gradients of each; the worst counts, and all are named."""
    tally = Tally()
    shapes = [*_ROWS, *_COLUMNS, *_SEVERAL]
    if problem.case.device != "cpu":
        shapes += _ON_A_GPU
    for input, target in shapes:
        name = f"{input} with {target}"
        variant = problem.variant(name, partial(_shaped, problem, input, target))
        answer = subject.answer(variant.call(variant.usual))
        tally.judge(name, variant, variant.usual, answer)
    yield tally.result(problem, subject.name, "broadcasts")


def _shaped(problem: Problem, input: Shape, target: Shape) -> Problem:
    case = problem.case.reshaped(input, target)
    return problem.like(make_inputs(case), case)


CHECK = Check(
    "broadcasts",
    "forward_backward",
    _run,
    adapt=sizes_case,
    once=True,
    mean_for_sum=True,
    units=(ELEMENT,),
)
