"""Checks operands of other strides and broadcasts.

Catches: a kernel that assumes contiguous operands, ignores a storage offset, loads vectors from
unaligned addresses, uses the strides of one operand for the other, reads gaps, broadcasts along the
wrong axis, does not sum a gradient over the broadcast axis or sums it over the wrong one, or reads
an operand of one dtype as another or rounds it to another. Most shapes are not square, so that a
wrong axis cannot fit; some are square, because a transposed read of a square operand has the right
shape. Gaps and memory before offsets hold NaN, which a wrong read brings into the result. One size
is enough.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from losscli.cases import Case
from losscli.implementations.call_data import Operands
from losscli.implementations.subject import Subject
from losscli.losses import ELEMENT, MODEL, Shape
from losscli.truth.inputs import make_inputs
from losscli.truth.problem import Incoming, Problem
from losscli.verify.checks.check import Tally, check, small_case

Relayout = Callable[[Tensor], Tensor]
"""Give values another layout; some give up most of the values as well."""


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


def _without_last(values: Tensor) -> Tensor:
    rows, columns = values.shape
    return values.new_full((rows, columns + 1), math.nan)[:, :-1].copy_(values)


def _without_first(values: Tensor) -> Tensor:
    rows, columns = values.shape
    return values.new_full((rows, columns + 1), math.nan)[:, 1:].copy_(values)


def _swapped(values: Tensor) -> Tensor:
    """Store the first dimension as the last; of one dimension, every second element of more."""
    if values.dim() < 2:
        return torch.stack([values, values], -1)[..., 0]
    return values.transpose(0, -1).contiguous().transpose(0, -1)


def _shifted(values: Tensor) -> Tensor:
    """Store values of any dtype behind one more."""
    whole = values.new_zeros(values.numel() + 1)
    return whole[1:].view(values.shape).copy_(values)


def permuted(values: Tensor, order: tuple[int, ...]) -> Tensor:
    """Store the dimensions in another order, the last of it the fastest."""
    back = [order.index(dimension) for dimension in range(len(order))]
    return values.permute(order).contiguous().permute(back)


STORED: dict[str, tuple[Relayout, Relayout]] = {
    "both operands transposed": (_transposed, _transposed),
    "input transposed": (_transposed, _as_is),
    "target transposed": (_as_is, _transposed),
    "every second column of a wider input": (_every_second_column, _as_is),
    "every second column of wider operands": (_every_second_column, _every_second_column),
    "operands cut out of larger ones": (_cut_out, _cut_out),
    "input without its last column, target without its first": (_without_last, _without_first),
    "one row expanded to the input": (_expanded_rows, _as_is),
    "one column expanded to the target": (_as_is, _expanded_columns),
    "input one element off its alignment": (partial(_offset, by=1), _as_is),
    "operands 1 and 3 elements off their alignment": (
        partial(_offset, by=1),
        partial(_offset, by=3),
    ),
}
"""How input and target of one shape lie."""

OF_ALL: dict[str, Relayout] = {
    "all operands transposed": _swapped,
    "all operands one element off their alignment": _shifted,
}
"""How the operands of a Model lie, whatever shapes and dtypes they have."""

LATER: dict[str, Relayout] = {
    "transposed": _transposed,
    "of every second column of a wider one": _every_second_column,
    "of one row expanded": _expanded_rows,
    "of one row": lambda values: values[0].clone(),
    "of one column": lambda values: values[:, :1].clone(),
    "of one number": lambda values: values[0, 0].clone(),
    "one element off its alignment": partial(_offset, by=1),
}
"""How each operand after the target lies, beside the others of the usual layout."""
BROADCAST: dict[str, tuple[Callable[[int, int], Shape], Callable[[int, int], Shape]]] = {
    "target of one row": (lambda rows, columns: (rows, columns), lambda _, columns: (columns,)),
    "target of one column": (lambda rows, columns: (rows, columns), lambda rows, _: (rows, 1)),
    "target that repeats in the middle": (
        lambda rows, columns: (rows, 4, columns // 4 + 1),
        lambda rows, columns: (rows, 1, columns // 4 + 1),
    ),
    "input that repeats in the middle": (
        lambda rows, columns: (rows, 1, columns // 4 + 1),
        lambda rows, columns: (rows, 4, columns // 4 + 1),
    ),
    "target of one number": (lambda rows, columns: (rows, columns), lambda *_: ()),
    "input of one row": (lambda _, columns: (columns,), lambda rows, columns: (rows, columns)),
    "input of one column, target of one row": (
        lambda rows, _: (rows, 1),
        lambda _, columns: (columns,),
    ),
}
"""Shapes of input and target, from rows and columns."""
SQUARE: dict[str, tuple[Shape, Relayout, Relayout]] = {
    "square operands": ((64, 64), _as_is, _as_is),
    "square operands of an odd size": ((37, 37), _as_is, _as_is),
    "square operands, the input transposed": ((37, 37), _transposed, _as_is),
    "square operands, the target transposed": ((37, 37), _as_is, _transposed),
    "square input, target of one row": ((37,), _as_is, _as_is),
    "square input, target of one column": ((37, 1), _as_is, _as_is),
}
"""The shape of the target, and how operands lie of which the input is square."""
FIVE = (3, 4, 5, 6, 7)
PERMUTED: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "five dimensions, the input permuted": ((4, 1, 3, 0, 2), (0, 1, 2, 3, 4)),
    "five dimensions, each operand permuted in its own way": ((2, 0, 4, 1, 3), (1, 4, 0, 3, 2)),
}
"""Orders in which the dimensions of input and target are stored."""
INTEGERS = (torch.int64, torch.uint8)
"""Dtypes of a target that asks for no gradient."""


def layout_case(case: Case) -> Case:
    """Return a small case of a target that has the shape of the prediction."""
    small = small_case(case)
    return small.reshaped(small.shape, small.shape)


@check(adapt=layout_case, mean_for_sum=True, units=(ELEMENT,))
def layouts(problem: Problem, subject: Subject, tally: Tally) -> None:
    """Judge the loss and all gradients of each layout; the worst counts, and all are named."""
    for name, variant in _variants(problem):
        fresh = subject.again()
        first, *others = _incoming(variant)
        for incoming in dict.fromkeys((first, *others)):
            answer = fresh.answer(variant.call(incoming))
            loss = incoming is first
            tally.judge_variant(name, variant, incoming, answer, loss=loss, by_incoming=True)


def _variants(problem: Problem) -> Iterator[tuple[str, Problem]]:
    """Yield each layout by its name."""
    if problem.case.spec.unit == MODEL:
        for name, relayout in OF_ALL.items():
            every = (relayout,) * len(problem.operands)
            yield name, problem.variant(name, partial(_stored, problem, *every))
        return
    for name, relayouts in STORED.items():
        yield name, problem.variant(name, partial(_stored, problem, *relayouts))
    for number, operand in enumerate(problem.case.spec.names[2:], 2):
        for how, relayout in LATER.items():
            name, where = f"{operand} {how}", (*(_as_is,) * number, relayout)
            yield name, problem.variant(name, partial(_whole, problem, operand, where))
    for name, shapes in BROADCAST.items():
        yield name, problem.variant(name, partial(_broadcast, problem, *shapes))
    for name, square in SQUARE.items():
        yield name, problem.variant(name, partial(_square, problem, *square))
    for name, orders in PERMUTED.items():
        yield name, problem.variant(name, partial(_in_five, problem, *orders))
    own = problem.prediction.dtype
    may_be_integers = {each.name: each.integers for each in problem.case.spec.operands}
    for operand in problem.case.spec.names[1:]:
        for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16, *INTEGERS):
            if dtype != own and (dtype.is_floating_point or may_be_integers[operand]):
                name = f"{operand} of {str(dtype).removeprefix('torch.')}"
                yield name, problem.variant(name, partial(_mixed, problem, operand, dtype))


def _incoming(variant: Problem) -> tuple[Incoming, ...]:
    """Return what comes in; an operand of integers has no gradient."""
    if variant.case.spec.unit == MODEL:
        repeated = Incoming("of one number, with stride 0", variant.wrt, variant.ones)
        return variant.usual, repeated
    dtypes = {name: operand.dtype for name, operand in variant.operands.items()}
    if len({*dtypes.values()}) == 1:
        return variant.usual, variant.others[-1]
    wrt = tuple(name for name in variant.wrt if dtypes[name].is_floating_point)
    return variant.filled(1.0, wrt), variant.filled(-3.0, wrt)


def _in_five(problem: Problem, input: tuple[int, ...], target: tuple[int, ...]) -> Problem:
    case = problem.case.reshaped(FIVE, FIVE)
    relayouts = (partial(permuted, order=order) for order in (input, target))
    return problem.like(_laid_out(make_inputs(case), *relayouts), case)


def _mixed(problem: Problem, name: str, dtype: torch.dtype) -> Problem:
    """Return the problem with an operand of another dtype; unsigned integers lose their signs."""
    values = problem.operands[name]
    values = values.abs() if dtype == torch.uint8 else values
    values = problem.case.spec.domains[name].inside(values)
    return problem.like({**problem.operands, name: values.to(dtype)})


def _stored(problem: Problem, *relayouts: Relayout) -> Problem:
    return problem.like(_laid_out(problem.operands, *relayouts))


def _whole(problem: Problem, name: str, relayouts: tuple[Relayout, ...]) -> Problem:
    """Return the problem with an operand of the whole shape, in layouts."""
    shape = problem.oracle.shape
    values = problem.operands[name].expand(shape)
    rows, columns = (torch.arange(extent, device=values.device) for extent in shape)
    # Each row begins with another element, so that rows differ also where they repeat.
    values = values.gather(1, (rows[:, None] + columns) % len(columns))
    return problem.like(_laid_out({**problem.operands, name: values}, *relayouts))


def _laid_out(operands: Operands, *relayouts: Relayout) -> Operands:
    """Return operands in layouts, those without one as they are."""
    given = zip(operands, relayouts, strict=False)
    return operands | {name: relayout(operands[name]) for name, relayout in given}


def _broadcast(
    problem: Problem, input: Callable[[int, int], Shape], target: Callable[[int, int], Shape]
) -> Problem:
    extents = problem.case.shape
    return problem.reshaped(input(*extents), target(*extents))


def _square(problem: Problem, target: Shape, *relayouts: Relayout) -> Problem:
    case = problem.case.reshaped((target[0], target[0]), target)
    return problem.like(_laid_out(make_inputs(case), *relayouts), case)
