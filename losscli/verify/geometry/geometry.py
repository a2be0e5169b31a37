"""What a geometry is, that of a ``Model``, and the ways in which any operand may lie in memory."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from losscli.cases.case import Case
from losscli.losses import Shape
from losscli.truth.inputs import no_value
from losscli.truth.problem import Problem
from losscli.truth.setup import Incoming

Variants = Iterable[tuple[str, Callable[[], Problem]]]
"""Problems that are made of one, by name."""
Vary = Callable[[Problem], Variants]
Adapt = Callable[[Case], Case]
Relayout = Callable[[Tensor], Tensor]
"""Give values another layout; some give up most of the values as well."""


def usual_and_other(variant: Problem) -> Sequence[Incoming]:
    """Return the usual grad_output and another one."""
    return variant.usual, variant.others[-1]


@dataclass(frozen=True)
class Geometry:
    """What differs between units, where one is checked."""

    shift: int = 1
    """By how many elements, or rows, another call's operands lie off and are as well aligned."""
    for_sizes: Adapt = lambda case: case
    """Make the case of which the sizes are made."""
    sizes: Vary = lambda problem: ()
    """Yield the sizes at which kernels switch code paths."""
    for_layouts: Adapt = lambda case: case
    """Make the case of which the layouts are made."""
    layouts: Vary = lambda problem: ()
    """Yield the ways in which operands may lie in memory, gaps holding NaN."""
    grad_outputs: Callable[[Problem], Sequence[Incoming]] = usual_and_other
    """Return the gradients that come into a call with a layout."""
    is_ordinary: Callable[[str], bool] = lambda layout: False
    """Tell whether kernels for ordinary operands have to take a layout."""
    may_be_refused: Callable[[Problem, str], bool] = lambda problem, layout: False
    """Tell whether PyTorch's own function refuses a layout as well."""
    harmless: Callable[[Problem], Problem] = lambda problem: problem
    """Return the problem without class numbers beyond another dimension: a GPU asserts on them."""
    for_repeats: Adapt = lambda case: case
    """Make the case that a large result repeats; of primes, so that repeats begin anywhere."""
    for_values: Adapt = lambda case: case
    """Make the case of which the extreme values are made."""
    extreme_values: Vary = lambda problem: ()
    """Yield values that need care, in each operand."""
    overflows: Callable[[float, Sequence[str]], bool] = lambda value, planted: False
    """Tell whether a finite value overflows where several operands have it."""
    for_rounding: Adapt = lambda case: case
    """Make the case with enough results of each kind to show a bias of their rounding."""


def of_shape(shape: Shape, target: Shape | None = None, **changes: Any) -> Adapt:
    """Return what makes a case one of a shape, whatever its own is, with normal values."""
    return lambda case: case.reshaped(shape, target, **{"distribution": "normal", **changes})


def of_shapes(problem: Problem, shapes: Mapping[str, tuple[Shape, Shape | None]]) -> Variants:
    """Yield a problem of each shape of prediction and target."""
    for name, shape in shapes.items():
        yield name, partial(problem.reshaped, *shape)


def laid_out(problem: Problem, relayouts: Mapping[str, Relayout]) -> Problem:
    """Return the problem with some operands in layouts."""
    return problem.like({name: lay(problem.operands[name]) for name, lay in relayouts.items()})


def as_is(values: Tensor) -> Tensor:
    """Leave values as they lie."""
    return values


def transposed(values: Tensor) -> Tensor:
    """Store two dimensions the other way round."""
    return values.t().contiguous().t()


def every_second(values: Tensor) -> Tensor:
    """Store values in every second place of memory that holds no values between them."""
    wide = values.new_full((*values.shape[:-1], 2 * values.shape[-1]), no_value(values.dtype))
    return wide[..., ::2].copy_(values)


def inside(*beside: int) -> Relayout:
    """Make values a view of a tensor that has more to their left and right, above and below."""

    def relayout(values: Tensor) -> Tensor:
        view = torch.constant_pad_nd(values, beside, no_value(values.dtype))
        for dimension, before in zip((-1, -2), beside[::2], strict=False):
            view = view.narrow(dimension, before, values.shape[dimension])
        return view

    return relayout


def expanded_rows(values: Tensor) -> Tensor:
    """Repeat the first row."""
    return values[:1].expand(values.shape)


def offset(values: Tensor, by: int) -> Tensor:
    """Store values some elements behind an aligned address."""
    flat = values.new_full((values.numel() + by,), no_value(values.dtype))
    return flat[by:].view(values.shape).copy_(values)


def permuted(values: Tensor, order: tuple[int, ...]) -> Tensor:
    """Store the dimensions in another order, the last of it the fastest."""
    back = [order.index(dimension) for dimension in range(len(order))]
    return values.permute(order).contiguous().permute(back)


def _swapped(values: Tensor) -> Tensor:
    """Store the first dimension as the last; of one dimension, every second element of more."""
    if values.dim() < 2:
        return torch.stack([values, values], -1)[..., 0]
    return values.transpose(0, -1).contiguous().transpose(0, -1)


def _shifted(values: Tensor) -> Tensor:
    whole = values.new_zeros(values.numel() + 1)
    return whole[1:].view(values.shape).copy_(values)


def _model_layouts(problem: Problem) -> Variants:
    for name, relayout in (
        ("all operands transposed", _swapped),
        ("all operands one element off their alignment", _shifted),
    ):
        yield name, partial(laid_out, problem, dict.fromkeys(problem.operands, relayout))


def _usual_and_one_number(variant: Problem) -> Sequence[Incoming]:
    """Return the usual grad_output and one number for all, which no other check asks for."""
    name = "of one number, with stride 0"
    return variant.usual, replace(variant.usual, name=name, grad_output=variant.ones)


MODELS = Geometry(layouts=_model_layouts, grad_outputs=_usual_and_one_number)
"""A ``Model`` has the shapes of its ``get_inputs``, and no others."""
