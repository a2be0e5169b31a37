"""Row-wise losses: of any length, in any strides, with dimensions behind the classes."""

import itertools
import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from losscli.implementations.local import Operands
from losscli.losses import CLASS_INDICES, MASK, RowSpec, Shape
from losscli.losses.domain import CLASSES, SHARES
from losscli.losses.rows.forms import IGNORE_INDEX, ignored_index
from losscli.losses.rows.spec import LOGITS, SCORES, VECTORS, Content
from losscli.truth.problem import Problem
from losscli.verify.geometry import geometry
from losscli.verify.geometry.geometry import Geometry, Relayout, Variants, every_second, of_shape

ROW_LENGTHS = (1, 2, 3, 7, 8, 9, 31, 32, 33, 127, 128, 129, 1023, 1024, 1025, 4097, 50257)
"""One, around the sizes of vectors, warps and blocks, and a vocabulary."""
ROW_SHAPES: tuple[Shape, ...] = (
    # and a single row so long that several threads or blocks share it
    *((3 if length > 4096 else 5, length) for length in ROW_LENGTHS),
    *((0, 7), (1, 1000), (1031, 3), (67, 129), (1, 132099), (16411, 3)),
)
INPUTS: dict[str, Relayout] = {
    "input transposed": geometry.transposed,
    "every second column of a wider input": every_second,
    "input cut out of a larger one": geometry.inside(3, 4, 1, 1),
    "one row expanded to the input": geometry.expanded_rows,
    "input one element off its alignment": geometry.offset(1),
    "input without its last column": geometry.inside(0, 1),
}
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
"""Shapes of losses whose rows are the last dimension."""
LAST: dict[str, tuple[Shape, tuple[int, ...]]] = {
    "classes side by side, though not last": ((5, 101, 3), (0, 2, 1)),
    "classes the slowest": ((5, 101, 3), (1, 2, 0)),
    "the batch between": ((3, 17, 2, 5), (2, 0, 3, 1)),
    "a few long rows next to each other": ((3, 1031), (1, 0)),
}
"""Shapes, and the storage order of the prediction's dimensions."""
NOT_LAST: dict[str, tuple[Shape, tuple[int, ...]]] = {
    "a row between": ((5, 3, 101), (0, 2, 1)),
    "rows the slowest": ((5, 3, 101), (2, 0, 1)),
    "the batch in another order": ((3, 2, 5, 17), (2, 0, 3, 1)),
}
"""The same for losses whose rows are the last dimension."""
NUMBERS = (torch.int64, torch.int32, torch.uint8)
SHAPE = (12, 131)
"""Odd rows; the planted class falls on all of a vector's lanes."""
LONG = (5, 1031)
"""Rows that kernels walk in several steps, each of which has a planted class."""
CONFIDENT = 30.0
"""A logit so far above the others that they hardly count."""
LARGE = 1e4
Change = Callable[[Tensor], Tensor]
"""Gives rows other values, or tells which rows to ignore."""


def _planted_class(logits: Tensor) -> Tensor:
    rows, classes = logits.shape
    return (torch.arange(rows, device=logits.device) * (classes // rows | 1) + 3) % classes


def _with_one(logits: Tensor, one: float) -> Tensor:
    return logits.scatter(1, _planted_class(logits)[:, None], one)


CONTENTS: dict[Content, dict[str, Change]] = {
    LOGITS: {
        "one class far above the others": lambda logits: _with_one(logits, CONFIDENT),
        "one class far below the others": lambda logits: _with_one(logits, -CONFIDENT),
        # The largest of training, whose exponential overflows float32.
        "logits around 100": lambda logits: logits + 100.0,
        "logits of 1e4": lambda logits: (logits * LARGE).clamp(-3 * LARGE, 3 * LARGE),
        "logits around 1e4": lambda logits: logits + LARGE,
        "logits around -1e4": lambda logits: logits - LARGE,
        "equal logits": torch.zeros_like,
        "a tie of the largest": lambda logits: logits.clamp(max=0.5),
        "rows of -infinity but for one class": lambda logits: _with_one(
            torch.full_like(logits, -math.inf), 0.5
        ),
        "a third of the classes at -infinity": lambda logits: logits.masked_fill(
            torch.arange(logits.shape[1], device=logits.device) % 3 == 1, -math.inf
        ),
    },
    VECTORS: {
        "vectors of zeros": torch.zeros_like,
        "rows of one number": lambda rows: _with_one(torch.zeros_like(rows), 0.5),
        "short vectors": lambda rows: rows * 1e-4,  # the squares of other rows are far larger
        "vectors of 1e4": lambda rows: (rows * LARGE).clamp(-3 * LARGE, 3 * LARGE),
        "one number far above the others": lambda rows: _with_one(rows, LARGE),
    },
    SCORES: {
        "one class far above the others": lambda scores: _with_one(scores, LARGE),
        "one class far below the others": lambda scores: _with_one(scores, -LARGE),
        "equal scores": torch.zeros_like,
        "scores of 1e4": lambda scores: (scores * LARGE).clamp(-3 * LARGE, 3 * LARGE),
    },
}
PAIRS: dict[str, Change] = {"equal to the": torch.clone, "opposite to the": torch.neg}
SHARED: dict[str, Change] = {
    "of a sum above 1": lambda log_probs: log_probs.log_softmax(1) + 0.25,
    "of one class alone": lambda log_probs: _with_one(torch.full_like(log_probs, -math.inf), -0.5),
}
IGNORED: dict[str, Change] = {
    "no row ignored": lambda place: place < 0,
    "the first row ignored": lambda place: place == 0,
    "every second row ignored": lambda place: place % 2 == 1,
    "all rows but one ignored": lambda place: place != 7,
    "all rows ignored": lambda place: place >= 0,
}


def _of_dtype(problem: Problem, name: str, dtype: torch.dtype) -> dict[Shape, str]:
    named = f"{name} of {str(dtype).removeprefix('torch.')}"
    # Rows so long that kernels read class indices elsewhere.
    return {problem.case.shape: named, (13, 1001): f"{named}, long rows"}


def _numbered(problem: Problem, name: str, dtype: torch.dtype, shape: Shape) -> Problem:
    own = problem if shape == problem.case.shape else problem.reshaped(shape)
    values = own.operands[name]
    values = values.clamp(min=0) if dtype == torch.uint8 else values
    return own.like({name: values.to(dtype)})


def _changed(problem: Problem, name: str, change: Change, shape: Shape | None = None) -> Problem:
    """Return the problem with changed rows; half the targets are the planted class."""
    problem = problem.reshaped(shape) if shape else problem
    rows = problem.operands[name]
    operands: Operands = {name: change(rows)}
    for operand in problem.case.spec.operands:
        if operand.kind == CLASS_INDICES:
            target = problem.operands[operand.name].clone()
            numbers = target.view(len(target), -1)[::2]
            planted = _planted_class(rows).to(target)[::2, None]
            # It becomes a row's first class, and the old first class takes its place.
            numbers.copy_(torch.where(numbers == planted, numbers[:, :1], numbers))
            numbers[:, :1] = planted
            operands[operand.name] = target
    return problem.like(operands)


def _ignoring(problem: Problem, where: Change, holding: float | None = None) -> Problem:
    """Return the problem with only some rows ignored or masked, perhaps filled with ``holding``."""
    operands: Operands = {}
    for operand in problem.case.spec.operands:
        given = problem.operands[operand.name]
        place = torch.arange(len(given), device=given.device)
        if operand.kind == CLASS_INDICES:
            if IGNORE_INDEX.name not in problem.case.params:
                continue
            ignored = int(problem.case.params[IGNORE_INDEX.name])
            operands[operand.name] = _counting(given, ignored).masked_fill(where(place), ignored)
        elif operand.kind == MASK:
            operands[operand.name] = ~where(place)
        elif holding is not None and operand.name in problem.case.spec.promoted:
            operands[operand.name] = given.masked_fill(where(place)[:, None], holding)
    return problem.like(operands)


def ignored_rows(problem: Problem) -> Variants:
    """Yield the problem with some rows ignored or masked, if the loss has such rows."""
    ignores = ignored_index(problem.case.params) is not None
    masks = any(operand.kind == MASK for operand in problem.case.spec.operands)
    for name, where in IGNORED.items() if ignores or masks else ():
        yield name, partial(_ignoring, problem, where)
        if masks:
            yield f"{name}, which hold NaN", partial(_ignoring, problem, where, holding=math.nan)


def _shaped(problem: Problem, shape: Shape) -> Problem:
    """Return the problem with another shape, in which at least one row counts."""
    own = problem.reshaped(shape)
    ignored = ignored_index(own.case.params)
    if ignored is None:
        return own
    names = (each.name for each in own.case.spec.operands if each.kind == CLASS_INDICES)
    none = (name for name in names if torch.all(own.operands[name] == ignored))
    return own.like({name: _counting(own.operands[name], ignored) for name in none})


def _counting(rows: Tensor, ignored: int) -> Tensor:
    return torch.where(rows == ignored, 0 if ignored else 1, rows)


def _layouts(problem: Problem) -> Variants:
    spec = problem.case.spec
    for operand in spec.operands:
        for dtype in NUMBERS if operand.kind == CLASS_INDICES else ():
            for shape, name in _of_dtype(problem, operand.name, dtype).items():
                yield name, partial(_numbered, problem, operand.name, dtype, shape)
        relayouts: dict[str, Relayout] = {f"{operand.name} of every second of more": every_second}
        if problem.operands[operand.name].dim() == problem.prediction.dim():
            called = "input" if operand == spec.operands[0] else operand.name
            relayouts = {n.replace("input", called): relayout for n, relayout in INPUTS.items()}
        elif not operand.shared:
            relayouts[f"{operand.name} of one number, repeated"] = geometry.expanded_rows
        for name, relayout in relayouts.items():
            yield name, partial(geometry.laid_out, problem, {operand.name: relayout})
    is_last = spec.loss_shape([(2, 3, 4)])[-2:] == (2, 3)
    most = spec.most_dimensions if isinstance(spec, RowSpec) else None
    for name, shape in (BEFORE if is_last else BEHIND).items():
        if len(shape) <= (most or len(shape)):
            yield name, partial(_shaped, problem, shape)
    orders = NOT_LAST if is_last else LAST
    for name, (shape, order) in orders.items() if not most else ():
        yield name, partial(geometry.stored, problem, shape, None, geometry.permuted(*order))


def _may_be_refused(problem: Problem, layout: str) -> bool:
    numbers = (each.name for each in problem.case.spec.operands if each.kind == CLASS_INDICES)
    others = itertools.product(numbers, NUMBERS[1:])
    return any(layout in _of_dtype(problem, *other).values() for other in others)


def _harmless(problem: Problem) -> Problem:
    if len(problem.case.shape) <= 2:
        return problem
    least = min(filter(None, problem.case.shape))
    classes = [each.name for each in problem.case.spec.operands if each.domain == CLASSES]
    given = {name: problem.operands[name] for name in classes}
    return problem.like({n: own.where(own < 0, own % least) for n, own in given.items()})


def _extreme_values(problem: Problem) -> Variants:
    spec, own = problem.case.spec, problem.operands
    assert isinstance(spec, RowSpec)
    first, *others = (
        each.name
        for each in spec.operands
        if each.differentiable
        and each.domain == spec.operands[0].domain
        and own[each.name].shape == problem.prediction.shape
    )
    for name, change in CONTENTS[spec.holds].items():
        for operand in (first, *others):
            title = name if operand == first else f"{name}, in the {operand}"
            yield title, partial(_changed, problem, operand, change)
            yield f"{title}, long rows", partial(_changed, problem, operand, change, LONG)
    for other, (name, change) in itertools.product(others, PAIRS.items()):
        yield f"{other} {name} {first}", partial(problem.like, {other: change(problem.prediction)})
    shares = [operand.name for operand in spec.operands if operand.domain == SHARES]
    for name, (title, change) in itertools.product(shares, SHARED.items()):
        yield f"{name} {title}", partial(problem.like, {name: change(own[name])})
    yield from ignored_rows(problem)


ROWS = Geometry(
    for_sizes=of_shape((1, 2)),
    sizes={"{} rows of {}".format(*shape): (shape, None) for shape in ROW_SHAPES},
    # Odd, so that rows begin anywhere in a vector; classes fit uint8, not int8.
    for_layouts=of_shape((13, 201), scale=1.0),
    layouts=_layouts,
    may_be_refused=_may_be_refused,
    harmless=_harmless,
    for_repeats=of_shape((67, 509), scale=1.0),
    for_values=of_shape(SHAPE, scale=1.0),
    extreme_values=_extreme_values,
    # The product of a probability and a weight.
    overflows=lambda value, planted: len(planted) >= 3 and 1 < value < math.inf,
    for_rounding=of_shape((1033, 17)),
)
