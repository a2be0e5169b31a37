"""Checks rows of other strides, with dimensions behind the classes, and targets of other dtypes."""

from __future__ import annotations

from functools import partial

import torch

from losscli.implementations.errors import SubjectError
from losscli.implementations.subject import Subject
from losscli.losses import CLASS_NUMBERS, ROW, RowSpec, Shape
from losscli.losses.domain import CLASSES
from losscli.truth.problem import Problem
from losscli.verify.checks.check import COPIES, Cost, Tally, Variants, check, of_shape
from losscli.verify.checks.layouts import STORED, every_second, laid_out, permuted

SHAPE = (13, 201)
"""Odd, so that rows begin anywhere in a vector; of as many classes as any integer counts, and
more than it would count if it were signed."""
INPUTS = {
    "both operands transposed": "input transposed",
    "every second column of a wider input": "every second column of a wider input",
    "operands cut out of larger ones": "input cut out of a larger one",
    "one row expanded to the input": "one row expanded to the input",
    "input one element off its alignment": "input one element off its alignment",
    "input without its last column, target without its first": "input without its last column",
}
"""The layouts of predictions as losses of elements have them, by what they are called here."""
ALONE = "one row alone"
BEHIND: dict[str, Shape] = {
    ALONE: (101,),
    "a dimension behind the classes": (5, 101, 3),
    "a dimension of 1 behind the classes": (5, 101, 1),
    "two dimensions behind the classes": (3, 17, 2, 5),
    "no row behind the classes": (3, 17, 0),
}
BEFORE: dict[str, Shape] = {
    ALONE: (101,),
    "two dimensions of rows": (5, 3, 101),
    "two dimensions of rows, of which one is 1": (5, 1, 101),
    "three dimensions of rows": (3, 2, 5, 17),
    "no row in the second dimension": (3, 0, 17),
}
"""Shapes of rows that lie along the last dimension."""
LAST: dict[str, tuple[Shape, tuple[int, ...]]] = {
    "classes side by side, though not last": ((5, 101, 3), (0, 2, 1)),
    "classes the slowest": ((5, 101, 3), (1, 2, 0)),
    "the batch between": ((3, 17, 2, 5), (2, 0, 3, 1)),
    "a few long rows beside each other": ((3, 1031), (1, 0)),
}
"""Shapes, and the order in which the dimensions of the prediction are stored."""
NOT_LAST: dict[str, tuple[Shape, tuple[int, ...]]] = {
    "a row between": ((5, 3, 101), (0, 2, 1)),
    "rows the slowest": ((5, 3, 101), (2, 0, 1)),
    "the batch in another order": ((3, 2, 5, 17), (2, 0, 3, 1)),
}
"""The same of rows that lie along the last dimension."""
NUMBERS = (torch.int64, torch.int32, torch.uint8)
"""The dtypes of class numbers."""
LONG = (13, 1001)
"""A shape whose rows no kernel takes side by side: it reads class numbers in another place then."""


@check(
    place=90,
    catches="kernels that assume classes side by side, the last dimension taken for the classes",
    advice="Use the strides of rows and classes; the classes are dimension 1.",
    cost=Cost.QUICK,
    adapt=of_shape(SHAPE, scale=1.0),
    mean_for_sum=True,
    units=(ROW,),
    limits=lambda variant: variant != ALONE,
    one_process=COPIES,
)
def row_layouts(problem: Problem, subject: Subject, tally: Tally) -> None:
    """Check rows of other strides, and targets of other dtypes.

    For losses over rows: transposed, sliced, strided, expanded and misaligned rows, one row without
    a batch, dimensions behind the classes in several orders, class numbers in int64, int32 and
    uint8. Gaps hold NaN, and what is no class.
    """
    own = subject.implementation.held_to_oracle
    # A formula that takes the last dimension for the classes finds numbers that are none. On a GPU
    # that ends the process of an honest file, which is to give another answer or to refuse.
    careful = not own and problem.case.device != "cpu"
    for name, make in _variants(problem):
        variant = problem.variant(name, make)
        if careful and len(variant.case.shape) > 2:
            variant = problem.variant(f"{name}, in range", partial(_in_range, variant))
        fresh = subject.again()
        for incoming in dict.fromkeys((variant.usual, variant.others[-1])):
            try:
                answer = fresh.send(variant.call(incoming))
            except SubjectError as error:
                # PyTorch's own function takes no class numbers in int32.
                if error.refused and name in _of_dtypes(problem) and not own:
                    continue
                raise
            tally.judge_variant(name, variant, incoming, answer, by_incoming=True)


def _variants(problem: Problem) -> Variants:
    """Yield each layout by its name."""
    first, *others = problem.case.spec.operands
    for known, name in INPUTS.items():
        yield name, partial(laid_out, problem, {first.name: STORED[known][0]})
    for operand in others:
        for dtype in NUMBERS if operand.kind == CLASS_NUMBERS else ():
            for shape, name in _of_dtype(problem, operand.name, dtype).items():
                yield name, partial(_numbered, problem, operand.name, dtype, shape)
        if problem.operands[operand.name].dim() == problem.prediction.dim():
            for known, name in INPUTS.items():
                title = name.replace("input", operand.name)
                yield title, partial(laid_out, problem, {operand.name: STORED[known][0]})
            continue
        relayouts = {"of every second of more": every_second}
        if not operand.shared:
            relayouts["of one number, repeated"] = lambda values: values[:1].expand(values.shape)
        for how, relayout in relayouts.items():
            yield f"{operand.name} {how}", partial(laid_out, problem, {operand.name: relayout})
    is_last = problem.case.spec.loss_shape([(2, 3, 4)])[-2:] == (2, 3)
    spec = problem.case.spec
    most = spec.most_dimensions if isinstance(spec, RowSpec) else None
    for name, shape in (BEFORE if is_last else BEHIND).items():
        if len(shape) <= (most or len(shape)):
            yield name, partial(problem.reshaped, shape)
    orders = NOT_LAST if is_last else LAST
    for name, (shape, order) in orders.items() if not most else ():
        yield name, partial(_stored, problem, shape, order)


def _in_range(problem: Problem) -> Problem:
    """Return the problem with class numbers below the length of each dimension that has any."""
    least = min(filter(None, problem.case.shape))
    operands = dict(problem.operands)
    for operand in problem.case.spec.operands:
        if operand.domain == CLASSES:
            values = operands[operand.name]
            operands[operand.name] = values.where(values < 0, values % least)
    return problem.like(operands)


def _of_dtype(problem: Problem, name: str, dtype: torch.dtype) -> dict[Shape, str]:
    """Return the names of the layouts with class numbers of a dtype, by their shapes."""
    named = f"{name} of {str(dtype).removeprefix('torch.')}"
    return {problem.case.shape: named, LONG: f"{named}, long rows"}


def _of_dtypes(problem: Problem) -> set[str]:
    """Return the names of the layouts that differ in the dtype of class numbers alone."""
    names = [o.name for o in problem.case.spec.operands if o.kind == CLASS_NUMBERS]
    return {
        title
        for name in names
        for dtype in NUMBERS[1:]
        for title in _of_dtype(problem, name, dtype).values()
    }


def _numbered(problem: Problem, name: str, dtype: torch.dtype, shape: Shape) -> Problem:
    """Return the problem of a shape with class numbers of a dtype; uint8 ignores nothing."""
    own = problem if shape == problem.case.shape else problem.reshaped(shape)
    values = own.operands[name]
    values = values.clamp(min=0) if dtype == torch.uint8 else values
    return own.like({**own.operands, name: values.to(dtype)})


def _stored(problem: Problem, shape: Shape, order: tuple[int, ...]) -> Problem:
    """Return the problem of a shape with the dimensions of its prediction in another order."""
    own = problem.reshaped(shape)
    return laid_out(own, {own.case.spec.names[0]: partial(permuted, order=order)})
