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

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from losscli.cases.case import Case
from losscli.implementations.call_data import Operands
from losscli.implementations.subject import Subject
from losscli.losses import ELEMENT, MODEL, Shape
from losscli.truth.inputs import no_value
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
    wide = values.new_full((rows, 2 * columns), no_value(values.dtype))[:, ::2]
    return wide.copy_(values)


def _inside(*beside: int) -> Relayout:
    """Make values a view of a tensor that has more to their left and right, above and below."""

    def relayout(values: Tensor) -> Tensor:
        view = torch.constant_pad_nd(values, beside, no_value(values.dtype))
        for dimension, before in zip((-1, -2), beside[::2], strict=False):
            view = view.narrow(dimension, before, values.shape[dimension])
        return view

    return relayout


def _expanded_rows(values: Tensor) -> Tensor:
    return values[:1].expand(values.shape)


def _offset(values: Tensor, by: int) -> Tensor:
    flat = values.new_full((values.numel() + by,), no_value(values.dtype))
    return flat[by:].view(values.shape).copy_(values)


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
    "operands cut out of larger ones": (_inside(3, 4, 1, 1), _inside(3, 4, 1, 1)),
    "input without its last column, target without its first": (_inside(0, 1), _inside(1, 0)),
    "one row expanded to the input": (_expanded_rows, _as_is),
    "one column expanded to the target": (
        _as_is,
        lambda values: values[:, :1].expand(values.shape),
    ),
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


def broadcast_shapes(rows: int, columns: int) -> dict[str, tuple[Shape, Shape]]:
    """Return shapes of input and target."""
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


SQUARE: dict[str, tuple[Shape, Relayout, Relayout]] = {
    "square operands": ((64, 64), _as_is, _as_is),
    "square operands of an odd size": ((37, 37), _as_is, _as_is),
    "square operands, the input transposed": ((37, 37), _transposed, _as_is),
    "square operands, the target transposed": ((37, 37), _as_is, _transposed),
    "square input, target of one row": ((37,), _as_is, _as_is),
    "square input, target of one column": ((37, 1), _as_is, _as_is),
}
"""The shape of the target, and how operands lie of which the input is square."""
CONTIGUOUS = [name for name in SQUARE if not name.endswith("transposed")]
REPEATED = ("of one row", "of one column", "of one number")
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


def _is_limit(variant: str) -> bool:
    """Tell whether a layout is neither that of contiguous operands nor a broadcast of one."""
    return variant not in (*broadcast_shapes(1, 1), *CONTIGUOUS) and not variant.endswith(REPEATED)


@check(adapt=layout_case, mean_for_sum=True, units=(ELEMENT,), limits=_is_limit)
def layouts(problem: Problem, subject: Subject, tally: Tally) -> None:
    """Judge the loss and all gradients of each layout; the worst counts, and all are named."""
    for name, variant in _variants(problem):
        if variant.refused:
            continue
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
            make = partial(_laid_out, problem, problem.operands, *every)
            yield name, problem.variant(name, make)
        return
    for name, relayouts in STORED.items():
        make = partial(_laid_out, problem, problem.operands, *relayouts)
        yield name, problem.variant(name, make)
    for number, operand in enumerate(problem.case.spec.names[2:], 2):
        for how, relayout in LATER.items():
            name, where = f"{operand} {how}", (*(_as_is,) * number, relayout)
            yield name, problem.variant(name, partial(_whole, problem, operand, where))
    for name, shapes in broadcast_shapes(*problem.case.shape).items():
        yield name, problem.variant(name, partial(problem.reshaped, *shapes))
    for name, (target, *both) in SQUARE.items():
        make = partial(_reshaped, problem, (target[0],) * 2, target, *both)
        yield name, problem.variant(name, make)
    for name, orders in PERMUTED.items():
        stored = (partial(permuted, order=order) for order in orders)
        yield name, problem.variant(name, partial(_reshaped, problem, FIVE, FIVE, *stored))
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


def _mixed(problem: Problem, name: str, dtype: torch.dtype) -> Problem:
    """Return the problem with an operand of another dtype; unsigned integers lose their signs."""
    values = problem.operands[name]
    values = values.abs() if dtype == torch.uint8 else values
    values = problem.case.spec.domains[name].inside(values)
    return problem.like({**problem.operands, name: values.to(dtype)})


def _whole(problem: Problem, name: str, relayouts: tuple[Relayout, ...]) -> Problem:
    """Return the problem with an operand of the whole shape, in layouts."""
    shape = problem.oracle.shape
    values = problem.operands[name].expand(shape)
    rows, columns = (torch.arange(extent, device=values.device) for extent in shape)
    # Each row begins with another element, so that rows differ also where they repeat.
    values = values.gather(1, (rows[:, None] + columns) % len(columns))
    return _laid_out(problem, {**problem.operands, name: values}, *relayouts)


def _laid_out(problem: Problem, operands: Operands, *relayouts: Relayout) -> Problem:
    """Return the problem of operands in layouts, those without one as they are."""
    given = zip(operands, relayouts, strict=False)
    return problem.like(operands | {name: relayout(operands[name]) for name, relayout in given})


def _reshaped(problem: Problem, input: Shape, target: Shape, *relayouts: Relayout) -> Problem:
    own = problem.reshaped(input, target)
    return _laid_out(own, own.operands, *relayouts)
