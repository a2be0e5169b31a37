"""Checks operands of other strides and broadcasts."""

from __future__ import annotations

from functools import partial

from losscli.implementations.errors import SubjectError
from losscli.implementations.subject import Subject
from losscli.truth.problem import Problem
from losscli.verify.checks.check import COPIES, Cost, Tally, check
from losscli.verify.geometry import GEOMETRIES, geometry_of


@check(
    place=50,
    facet="layouts",
    catches="a kernel that assumes contiguous or aligned operands, a wrong axis, one dtype read as "
    "another, gradients in other strides",
    advice="Do not assume contiguous, aligned operands: use the strides, or call contiguous(). A "
    "target of shape (N,) follows the last dimension; classes are dimension 1.",
    formerly=("row_layouts", "linear_layouts"),
    cost=Cost.FEW,
    adapt=lambda case: geometry_of(case).for_layouts(case),
    mean_for_sum=True,
    limits=lambda variant, _: not any(each.is_ordinary(variant) for each in GEOMETRIES.values()),
    needs_gradient=False,
    recompiles=True,
    one_process=COPIES,
)
def layouts(problem: Problem, subject: Subject, tally: Tally) -> None:
    """Check operands of other strides, shapes and dtypes.

    Transposed, sliced, strided, expanded and misaligned operands; NaN in every gap. Elements: five
    dimensions in permuted orders, square and other operands, broadcasts of either operand, also in
    the middle dimension, targets of other dtypes, integers included. Rows: one row without a batch,
    dimensions behind the classes in several orders, class numbers in int64, int32 and uint8. Hidden
    states: one alone, tokens in two and three dimensions.

    Most shapes are not square, so that a wrong axis cannot fit; some are, because a transposed read
    of a square operand has the right shape.
    """
    geometry, own = geometry_of(problem.case), subject.implementation.held_to_oracle
    # A formula that takes the last dimension for the classes finds numbers that are none. On a GPU
    # that ends the process of a file, which is to give another answer or to refuse.
    careful = not own and problem.case.device != "cpu"
    for name, make in geometry.layouts(problem):
        variant = problem.variant(name, make)
        if variant.refused:
            continue
        if careful:
            variant = problem.variant(f"{name}, in range", partial(geometry.harmless, variant))
        fresh, several = subject.again(), geometry.grad_outputs(variant)
        for each in dict.fromkeys(several):
            try:
                answer = fresh.send(variant.call(each))
            except SubjectError as error:
                if error.refused and not own and geometry.may_be_refused(problem, name):
                    continue
                raise
            tally.judge_variant(name, variant, each, answer, by_incoming=len(several) > 1)
