"""Fused linear losses: the loss of the logits of tokens and a weight."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

import torch
from torch import Tensor

from losscli.losses import Shape
from losscli.truth.problem import Problem
from losscli.truth.setup import Incoming
from losscli.verify.geometry import geometry
from losscli.verify.geometry.geometry import Geometry, Relayout, Variants, every_second, of_shape
from losscli.verify.geometry.row import CONFIDENT, LARGE, ignored_rows

TOKENS: tuple[Shape, ...] = (
    *((1, 1, 1), (1, 24, 1000), (5, 1, 7), (3, 8, 1), (0, 24, 101)),
    *((1031, 8, 3), (129, 64, 129), (67, 33, 1025), (3, 16, 50257)),
)
"""Tokens, width and classes: one of each, none, around tiles of products, and a vocabulary."""
SHAPE = (12, 24, 131)
"""Tokens, width and classes: odd rows of logits."""
ONE_CLASS = 7
Layer = tuple[Tensor, Tensor]
"""Hidden states and the linear layer's weight."""


def _with_offset(layer: Layer, offset: float, classes: int | slice = slice(None)) -> Layer:
    hidden, weight = (each.clone() for each in layer)
    hidden[:, 0] = 1
    weight[:, 0] = 0
    weight[classes, 0] = offset
    return hidden, weight


def _with_tie(layer: Layer) -> Layer:
    hidden, weight = _with_offset(layer, CONFIDENT, ONE_CLASS)
    weight[-1] = weight[ONE_CLASS]
    return hidden, weight


VALUES: dict[str, Callable[[Layer], Layer]] = {
    "logits around 1e4": lambda layer: _with_offset(layer, LARGE),
    "logits around -1e4": lambda layer: _with_offset(layer, -LARGE),
    # Float16 holds them, but not their exponentials.
    "logits of some thousands": lambda layer: (layer[0] * 3e3, layer[1]),
    "one class far above the others": lambda layer: _with_offset(layer, CONFIDENT, ONE_CLASS),
    "one class far below the others": lambda layer: _with_offset(layer, -CONFIDENT, ONE_CLASS),
    "a tie of the largest": _with_tie,
    "equal logits": lambda layer: (layer[0], torch.zeros_like(layer[1])),
    "hidden states of zeros": lambda layer: (torch.zeros_like(layer[0]), layer[1]),
}

LAYOUTS: dict[str, Relayout] = {
    "transposed": geometry.transposed,
    "in every second place": every_second,
    "cut out of a larger one": geometry.inside(1, 1, 1, 1),
}
LEADING: dict[str, Shape] = {
    "one hidden state alone": (),
    "two dimensions of tokens": (2, 6),
    "three dimensions of tokens": (2, 3, 2),
    "no token in the second dimension": (3, 0),
}


def _changed(problem: Problem, change: Callable[[Layer], Layer]) -> Problem:
    hidden, numbers, weight = problem.case.spec.names[:3]
    own = problem.operands
    target = own[numbers].clone()
    target[::2] = ONE_CLASS
    changed = change((own[hidden], own[weight]))
    return problem.like({hidden: changed[0], numbers: target, weight: changed[1]})


def _leading(problem: Problem, shape: Shape) -> Problem:
    count = torch.Size(shape).numel()
    own = {o.name: problem.operands[o.name] for o in problem.case.spec.operands if not o.shared}
    return problem.like({n: x[:count].reshape((*shape, *x.shape[1:])) for n, x in own.items()})


def _layouts(problem: Problem) -> Variants:
    for (name, values), (title, change) in product(problem.operands.items(), LAYOUTS.items()):
        if values.dim() == 2 or change is every_second:
            yield f"{name} {title}", partial(problem.like, {name: change(values)})
    for title, shape in LEADING.items():
        yield title, partial(_leading, problem, shape)


def _grad_outputs(variant: Problem) -> Sequence[Incoming]:
    usual = variant.usual
    if variant.case.reduction != "none":
        return (usual,)
    shape = variant.oracle.unreduced_shape
    return (replace(usual, grad_output=usual.grad_output[: shape.numel()].reshape(shape)),)


def _extreme_values(problem: Problem) -> Variants:
    for name, change in VALUES.items():
        yield name, partial(_changed, problem, change)
    yield from ignored_rows(problem)


HIDDEN_STATES = Geometry(
    for_sizes=of_shape(SHAPE),
    sizes={"{} tokens of {}, {} classes".format(*shape): (shape, None) for shape in TOKENS},
    for_layouts=of_shape(SHAPE, scale=1.0),
    layouts=_layouts,
    grad_outputs=_grad_outputs,
    for_values=of_shape(SHAPE, scale=1.0),
    extreme_values=_extreme_values,
)
