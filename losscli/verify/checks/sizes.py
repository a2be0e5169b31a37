"""Checks sizes around those at which kernels switch code paths.

Catches: a dropped tail of one element, a whole vector, warp or tile that is treated as a ragged one
or the other way round, empty tensors, a single element. Vectors, groups of lanes, warps and tiles
are powers of two: so the check runs the sizes zero and one, each power of two up to a tile, its
neighbours, and a few primes, in one dimension, for the loss and all gradients.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from losscli.cases import Case
from losscli.implementations.subject import Subject
from losscli.losses import ELEMENT
from losscli.runs.records import VerifyResult
from losscli.truth.problem import Problem
from losscli.verify.checks.check import Check, Tally

LARGEST_POWER = 14
"""16,384 elements, more than a tile of any kernel here."""
PRIMES = (37, 613, 4099)
SIZES = sorted(
    {0, 1, *PRIMES} | {2**power + by for power in range(1, LARGEST_POWER + 1) for by in (-1, 0, 1)}
)

_UNIT = " elements"


def sizes_case(case: Case) -> Case:
    """Return the case in one dimension, whatever its own shape, with values all over."""
    return case.reshaped((1,), (1,), distribution="normal")


def _run(problem: Problem, subject: Subject) -> Iterator[VerifyResult]:
    """Judge the loss and all gradients of each size; the smallest counts, and all are named."""
    tally = Tally(first=True)
    for size in SIZES:
        variant = problem.variant(str(size), partial(problem.reshaped, (size,), (size,)))
        answer = subject.answer(variant.call(variant.usual))
        tally.judge(f"{size}{_UNIT}", variant, variant.usual, answer)
    yield tally.result(problem, subject.name, "sizes", _name)


def _name(failed: list[str]) -> str:
    return f"at {', '.join(size.removesuffix(_UNIT) for size in failed)}{_UNIT}"


CHECK = Check(
    "sizes",
    "forward_backward",
    _run,
    adapt=sizes_case,
    once=True,
    mean_for_sum=True,
    units=(ELEMENT,),
)
