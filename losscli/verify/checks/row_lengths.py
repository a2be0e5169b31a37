"""Checks rows of the lengths at which kernels switch code paths.

Catches: the last classes of a row that does not fill a vector, a warp or a block left out, read
twice or read from the next row; a row of one class; no rows at all; one row more than a block
takes. Few rows of each length, for the loss and all gradients.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from losscli.cases import Case
from losscli.implementations.subject import Subject
from losscli.losses import ROW, Shape
from losscli.runs.records import VerifyResult
from losscli.truth.problem import Problem
from losscli.verify.checks.check import Check, Tally

LENGTHS = (1, 2, 3, 7, 8, 9, 31, 32, 33, 127, 128, 129, 1023, 1024, 1025, 4097, 50257)
"""One, and the sizes of vectors, warps and blocks with their neighbours; a vocabulary."""
LONG = 4096
"""Longer rows come fewer."""
SHAPES: tuple[Shape, ...] = (
    # and a single row so long that several threads or blocks share it
    *((3 if length > LONG else 5, length) for length in LENGTHS),
    (0, 7),
    (1, 1000),
    (1031, 3),
    (67, 129),
    (1, 132099),
)


def lengths_case(case: Case) -> Case:
    """Return the case with one row, whatever its own shape."""
    return case.reshaped((1, 2), distribution="normal")


def _run(problem: Problem, subject: Subject) -> Iterator[VerifyResult]:
    """Judge the loss and all gradients of each shape; the first counts, and all are named."""
    tally = Tally(first=True)
    for shape in SHAPES:
        title = f"{shape[0]} rows of {shape[1]}"
        variant = problem.variant(title, partial(problem.reshaped, shape))
        answer = subject.answer(variant.call(variant.usual))
        tally.judge(title, variant, variant.usual, answer)
    yield tally.result(problem, subject.name, CHECK.name)


CHECK = Check(
    "row_lengths",
    "forward_backward",
    _run,
    adapt=lengths_case,
    once=True,
    mean_for_sum=True,
    units=(ROW,),
)
