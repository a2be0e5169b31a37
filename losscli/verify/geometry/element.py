"""Elementwise losses: operands of any broadcastable shapes, in any strides."""

from collections.abc import Sequence
from functools import partial

import torch

from losscli.cases.case import Case
from losscli.losses import Shape
from losscli.truth.problem import Problem
from losscli.truth.setup import Incoming
from losscli.verify.geometry import geometry
from losscli.verify.geometry.geometry import Geometry, Relayout, Variants, as_is, inside, offset

PRIMES = (37, 613, 4099)
SIZES = sorted({0, 1, *PRIMES} | {2**power + by for power in range(1, 15) for by in (-1, 0, 1)})
"""Up to 16,384 elements, more than a tile of any kernel here."""

LAYOUTS_OF_PAIRS: dict[str, tuple[Relayout, Relayout]] = {
    "both operands transposed": (geometry.transposed, geometry.transposed),
    "input transposed": (geometry.transposed, as_is),
    "target transposed": (as_is, geometry.transposed),
    "every second column of a wider input": (geometry.every_second, as_is),
    "every second column of wider operands": (geometry.every_second, geometry.every_second),
    "operands cut out of larger ones": (inside(3, 4, 1, 1), inside(3, 4, 1, 1)),
    "input without its last column, target without its first": (inside(0, 1), inside(1, 0)),
    "one row expanded to the input": (geometry.expanded_rows, as_is),
    "one column expanded to the target": (as_is, lambda values: values[:, :1].expand(values.shape)),
    "input one element off its alignment": (offset(1), as_is),
    "operands 1 and 3 elements off their alignment": (offset(1), offset(3)),
}

LATER: dict[str, Relayout] = {
    "transposed": geometry.transposed,
    "of every second column of a wider one": geometry.every_second,
    "of one row expanded": geometry.expanded_rows,
    "of one row": lambda values: values[0].clone(),
    "of one column": lambda values: values[:, :1].clone(),
    "of one number": lambda values: values[0, 0].clone(),
    "one element off its alignment": offset(1),
}
"""The layout of each operand after the target, with the others in the usual one."""


def broadcast_shapes(rows: int, columns: int) -> dict[str, tuple[Shape, Shape]]:
    """Return shapes of input and target by name."""
    whole, middle = (rows, columns), columns // 4 + 1
    folded, repeated = (rows, 4, middle), (rows, 1, middle)
    return {
        "target of one row": (whole, (columns,)),
        "target of one column": (whole, (rows, 1)),
        "target that repeats in the middle": (folded, repeated),
        "input that repeats in the middle": (repeated, folded),
        "target of one number": (whole, ()),
        "input of one row": ((columns,), whole),
        "input of one column, target of one row": ((rows, 1), (columns,)),
    }


ODD = (37, 37)
FIVE = (3, 4, 5, 6, 7)
FOUR = (2, 4, 43, 48)
"""Its rows are short and made of whole vectors; the blocks of a GPU do not divide their number."""
CUT = inside(8, 8, 1, 1, 1, 1)
CONTIGUOUS = ("square operands", "square operands of an odd size")
"""Layouts that every kernel must accept."""
OTHER_SHAPES: dict[str, tuple[Shape, Shape, Relayout, Relayout]] = {
    CONTIGUOUS[0]: ((64, 64), (64, 64), as_is, as_is),
    CONTIGUOUS[1]: (ODD, ODD, as_is, as_is),
    "square operands, the input transposed": (ODD, ODD, geometry.transposed, as_is),
    "square operands, the target transposed": (ODD, ODD, as_is, geometry.transposed),
    "square input, target of one row": (ODD, (37,), as_is, as_is),
    "square input, target of one column": (ODD, (37, 1), as_is, as_is),
    "five dimensions, the input permuted": (FIVE, FIVE, geometry.permuted(4, 1, 3, 0, 2), as_is),
    "five dimensions, each operand permuted in its own way": (
        *(FIVE, FIVE),
        *(geometry.permuted(2, 0, 4, 1, 3), geometry.permuted(1, 4, 0, 3, 2)),
    ),
    "four dimensions, cut out of larger ones": (FOUR, FOUR, CUT, CUT),
}
"""The shapes and layouts of input and target."""
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8)
ROUNDED_ELEMENTS = 16411
"""Enough that the mean of errors of at most half a unit is within 0.01 of 0, four times its
standard deviation."""


def small_case(case: Case) -> Case:
    """Return a small case of two different extents, with the target broadcast as before."""
    shape = (37, 101)
    if len(case.shape) == 2 and min(case.shape) > 1:
        # More than a tile of a GPU, of no whole vectors.
        rows, columns = min(case.shape[0], 67), min(case.shape[1], 301)
        shape = (rows, columns if columns != rows else columns - 1 if columns > 2 else 3)
    return case.reshaped(shape, distribution="normal")


def _mixed(problem: Problem, name: str, dtype: torch.dtype) -> Problem:
    values = problem.operands[name]
    values = values.abs() if dtype == torch.uint8 else values
    values = problem.case.spec.domains[name].inside(values)
    return problem.like({name: values.to(dtype)})


def _whole(problem: Problem, name: str, relayout: Relayout) -> Problem:
    shape = problem.oracle.shape
    values = problem.operands[name].expand(shape)
    rows, columns = (torch.arange(extent, device=values.device) for extent in shape)
    # Each row begins with another element, so that repeated rows differ too.
    values = values.gather(1, (rows[:, None] + columns) % len(columns))
    return problem.like({name: relayout(values)})


def _layouts(problem: Problem) -> Variants:
    for name, relayouts in LAYOUTS_OF_PAIRS.items():
        lie = dict(zip(problem.operands, relayouts, strict=False))
        yield name, partial(geometry.laid_out, problem, lie)
    _, *others = problem.case.spec.operands
    for operand in others[1:]:
        for how, relayout in LATER.items():
            yield f"{operand.name} {how}", partial(_whole, problem, operand.name, relayout)
    yield from geometry.of_shapes(problem, broadcast_shapes(*problem.case.shape))
    for name, changes in OTHER_SHAPES.items():
        yield name, partial(geometry.stored, problem, *changes)
    for operand in others:
        for dtype in DTYPES:
            own = dtype == problem.prediction.dtype
            if not own and (dtype.is_floating_point or operand.integers):
                name = f"{operand.name} of {str(dtype).removeprefix('torch.')}"
                yield name, partial(_mixed, problem, operand.name, dtype)


def _grad_outputs(variant: Problem) -> Sequence[Incoming]:
    dtypes = {name: operand.dtype for name, operand in variant.operands.items()}
    if len({*dtypes.values()}) == 1:
        return geometry.usual_and_other(variant)
    wrt = tuple(name for name in variant.wrt if dtypes[name].is_floating_point)
    return variant.filled(1.0, wrt), variant.filled(-3.0, wrt)


ELEMENTS = Geometry(
    for_sizes=geometry.of_shape((1,), (1,)),
    sizes={f"{size} elements": ((size,), (size,)) for size in SIZES},
    for_layouts=lambda case: (small := small_case(case)).reshaped(small.shape, small.shape),
    layouts=_layouts,
    grad_outputs=_grad_outputs,
    for_repeats=geometry.of_shape((4099,), (4099,)),
    for_rounding=geometry.of_shape((ROUNDED_ELEMENTS,), (ROUNDED_ELEMENTS,)),
)
