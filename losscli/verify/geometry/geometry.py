"""The geometry of a unit, that of a ``Model``, and the layouts of any operand."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
"""Problems derived from one, by name."""
ShapesByName = Mapping[str, tuple[Shape, Shape | None]]
"""Shapes of prediction and target; None for the target's usual one."""
Vary = Callable[[Problem], Variants]
Adapt = Callable[[Case], Case]
Relayout = Callable[[Tensor], Tensor]
"""Gives values another layout; some keep only a few of the values."""


def usual_and_other(variant: Problem) -> Sequence[Incoming]:
    """Return the usual grad_output and another one."""
    return variant.usual, variant.others[-1]


@dataclass(frozen=True)
class Geometry:
    """What differs between units in checks; ``for_X`` makes the case from which ``X`` is made."""

    for_sizes: Adapt = lambda case: case
    sizes: ShapesByName = field(default_factory=dict)
    """The sizes at which kernels switch code paths."""
    for_layouts: Adapt = lambda case: case
    layouts: Vary = lambda problem: ()
    """Yield memory layouts of operands, with NaN in gaps."""
    grad_outputs: Callable[[Problem], Sequence[Incoming]] = usual_and_other
    """Return the grad_outputs of a layout."""
    may_be_refused: Callable[[Problem, str], bool] = lambda problem, layout: False
    """Tell whether PyTorch's own function rejects a layout too."""
    harmless: Callable[[Problem], Problem] = lambda problem: problem
    """Return the problem with class indices valid in any dimension, as a GPU asserts on others."""
    for_repeats: Adapt = lambda case: case
    """Make the case that a large result repeats; of primes, so that repeats begin anywhere."""
    for_values: Adapt = lambda case: case
    extreme_values: Vary = lambda problem: ()
    """Yield extreme values in each operand."""
    overflows: Callable[[float, Sequence[str]], bool] = lambda value, planted: False
    """Tell whether a finite value in several operands overflows."""
    for_rounding: Adapt = lambda case: case
    """Make the case with enough results to show a bias of rounding."""


def of_shape(shape: Shape, target: Shape | None = None, **changes: Any) -> Adapt:
    """Return a function that gives a case a shape and normal values."""
    return lambda case: case.reshaped(shape, target, **{"distribution": "normal", **changes})


def of_shapes(problem: Problem, shapes: ShapesByName) -> Variants:
    """Yield a problem of each shape of prediction and target."""
    for name, shape in shapes.items():
        yield name, partial(problem.reshaped, *shape)


def laid_out(problem: Problem, relayouts: Mapping[str, Relayout]) -> Problem:
    """Return the problem with some operands in other layouts."""
    return problem.like({name: lay(problem.operands[name]) for name, lay in relayouts.items()})


def stored(problem: Problem, shape: Shape, target: Shape | None, *relayouts: Relayout) -> Problem:
    """Return the problem in other shapes, its first operands in other layouts."""
    own = problem.reshaped(shape, target)
    return laid_out(own, dict(zip(own.operands, relayouts, strict=False)))


def as_is(values: Tensor) -> Tensor:
    """Keep the layout."""
    return values


def transposed(values: Tensor) -> Tensor:
    """Store two dimensions in the other order."""
    return values.t().contiguous().t()


def every_second(values: Tensor) -> Tensor:
    """Store values in every second place, with gaps in between."""
    wide = values.new_full((*values.shape[:-1], 2 * values.shape[-1]), no_value(values.dtype))
    return wide[..., ::2].copy_(values)


def inside(*padding: int) -> Relayout:
    """Make values a view of a padded tensor: left, right, above, below, ..., as PyTorch pads."""

    def relayout(values: Tensor) -> Tensor:
        view = torch.constant_pad_nd(values, padding, no_value(values.dtype))
        for dimension, before in enumerate(padding[::2], 1):
            view = view.narrow(-dimension, before, values.shape[-dimension])
        return view

    return relayout


def expanded_rows(values: Tensor) -> Tensor:
    """Repeat the first row."""
    return values[:1].expand(values.shape)


def offset(by: int, gap: float | None = None) -> Relayout:
    """Store values some elements behind an aligned address; ``gap`` replaces NaN before them."""

    def relayout(values: Tensor) -> Tensor:
        fill = no_value(values.dtype) if gap is None else gap
        return values.new_full((values.numel() + by,), fill)[by:].view(values.shape).copy_(values)

    return relayout


def permuted(*order: int) -> Relayout:
    """Store the dimensions in another order, the last one fastest."""
    back = [order.index(dimension) for dimension in range(len(order))]
    return lambda values: values.permute(order).contiguous().permute(back)


def _swapped(values: Tensor) -> Tensor:
    """Store the first dimension as the last, or one dimension in every second place."""
    if values.dim() < 2:
        return torch.stack([values, values], -1)[..., 0]
    return values.transpose(0, -1).contiguous().transpose(0, -1)


def _model_layouts(problem: Problem) -> Variants:
    relayouts = {"transposed": _swapped, "one element off their alignment": offset(1, gap=0)}
    for how, relayout in relayouts.items():
        changed = dict.fromkeys(problem.operands, relayout)
        yield f"all operands {how}", partial(laid_out, problem, changed)


def _usual_and_one_number(variant: Problem) -> Sequence[Incoming]:
    name = "of one number, with stride 0"
    return variant.usual, replace(variant.usual, name=name, grad_output=variant.ones)


MODELS = Geometry(layouts=_model_layouts, grad_outputs=_usual_and_one_number)
"""A ``Model`` has only the shapes of its ``get_inputs``."""
