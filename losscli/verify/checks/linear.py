"""Checks of losses of hidden states: their values, sizes, layouts and plans."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product

import torch
from msgspec import structs
from torch import Tensor

from losscli.cases.case import Case
from losscli.implementations import Implementation
from losscli.implementations.local import Operands
from losscli.implementations.requests import ExtraBytes
from losscli.implementations.subject import Subject, bind
from losscli.losses import HIDDEN_STATE, LinearSpec, Shape
from losscli.losses.linear.plan import CHUNKS, SLICES, WHOLE, Size, chunks, least
from losscli.losses.linear.spec import MEMORY_BUDGET
from losscli.losses.rows.forms import ignored_index
from losscli.truth.problem import Incoming, Problem
from losscli.units import format_bytes
from losscli.verify.checks.check import COPIES, Cost, Tally, Variants, check, of_shape, usual
from losscli.verify.checks.layouts import Relayout, every_second, inside, transposed
from losscli.verify.checks.row_values import CONFIDENT, IGNORED, LARGE, ignoring

SHAPE = (12, 24, 131)
"""Tokens, width and classes: odd rows of logits."""
ONE_CLASS = 7
"""A class that is far from the others."""
_FAR = 3e3
"""A factor of logits beyond what exponentials hold, within what float16 does."""

Layer = tuple[Tensor, Tensor]
"""Hidden states and the weight of the linear layer."""


def _with_offset(layer: Layer, offset: float, classes: slice = slice(None)) -> Layer:
    """Return a layer whose logits of some classes are larger by a number, for each token."""
    hidden, weight = (each.clone() for each in layer)
    hidden[:, 0] = 1
    weight[:, 0] = 0
    weight[classes, 0] = offset
    return hidden, weight


_ONE = slice(ONE_CLASS, ONE_CLASS + 1)


def _with_tie(layer: Layer) -> Layer:
    """Return a layer with a class whose logits are those of another, far above the rest."""
    hidden, weight = _with_offset(layer, CONFIDENT, _ONE)
    weight[-1] = weight[ONE_CLASS]
    return hidden, weight


VALUES: dict[str, Callable[[Layer], Layer]] = {
    "logits around 1e4": lambda layer: _with_offset(layer, LARGE),
    "logits around -1e4": lambda layer: _with_offset(layer, -LARGE),
    "logits of some thousands": lambda layer: (layer[0] * _FAR, layer[1]),
    "one class far above the others": lambda layer: _with_offset(layer, CONFIDENT, _ONE),
    "one class far below the others": lambda layer: _with_offset(layer, -CONFIDENT, _ONE),
    "a tie of the largest": _with_tie,
    "equal logits": lambda layer: (layer[0], torch.zeros_like(layer[1])),
    "hidden states of zeros": lambda layer: (torch.zeros_like(layer[0]), layer[1]),
}
"""What the operands hold."""


@check(
    place=120,
    catches="exponentials that overflow, also where all logits are large alike, confident tokens "
    "whose loss loses all digits, a mean that counts ignored tokens, a gradient of theirs",
    advice="Subtract the largest logit before the exponential; leave ignored tokens out of the "
    "loss, of its mean and of all gradients.",
    cost=Cost.QUICK,
    adapt=of_shape(SHAPE, scale=1.0),
    units=(HIDDEN_STATE,),
)
def linear_values(problem: Problem, subject: Subject, tally: Tally) -> None:
    """Check hidden states and weights whose logits need care.

    For losses of hidden states: logits around 1e4 and -1e4 and of some thousands, one class far
    above or below the others, ties, equal logits, hidden states of zeros; tokens ignored (none, the
    first, every second, all but one, all).
    """
    tally.judge_variants(problem, subject, _variants(problem), any_for_nan=True)


def _variants(problem: Problem) -> Variants:
    for name, change in VALUES.items():
        yield name, partial(_changed, problem, change)
    if ignored_index(problem.case.params) is not None:
        for name, where in IGNORED.items():
            yield name, partial(ignoring, problem, where)


def _changed(problem: Problem, change: Callable[[Layer], Layer]) -> Problem:
    hidden, numbers, weight = problem.case.spec.names[:3]
    own = problem.operands
    target = own[numbers].clone()
    target[::2] = ONE_CLASS
    changed = change((own[hidden], own[weight]))
    return problem.like({**own, hidden: changed[0], numbers: target, weight: changed[1]})


LAYOUTS: dict[str, Relayout] = {
    "transposed": transposed,
    "in every second place": every_second,
    "cut out of a larger one": inside(1, 1, 1, 1),
}
"""How the memory of an operand lies."""
ALONE = "one hidden state alone"
LEADING: dict[str, Shape] = {
    ALONE: (),
    "two dimensions of tokens": (2, 6),
    "three dimensions of tokens": (2, 3, 2),
    "no token in the second dimension": (3, 0),
}
"""The dimensions of the tokens."""


@check(
    place=140,
    catches="kernels that assume contiguous rows, gradients in other strides",
    advice="Use the strides of the hidden states and the weight, or call contiguous().",
    cost=Cost.QUICK,
    adapt=of_shape(SHAPE, scale=1.0),
    mean_for_sum=True,
    units=(HIDDEN_STATE,),
    limits=lambda variant: True,
    one_process=COPIES,
)
def linear_layouts(problem: Problem, subject: Subject, tally: Tally) -> None:
    """Check hidden states and weights of other strides, and tokens in several dimensions.

    For losses of hidden states: operands transposed, in every second place and cut out of larger
    ones, with NaN between; one hidden state alone, two and three dimensions of tokens.
    """
    tally.judge_variants(problem, subject, _layouts(problem), _of_tokens, fresh=True)


def _of_tokens(problem: Problem) -> tuple[Incoming]:
    """Return the usual incoming gradient, in the shape of the tokens."""
    if problem.case.reduction != "none":
        return usual(problem)
    shape, values = problem.oracle.unreduced_shape, problem.usual.grad_output
    return (replace(problem.usual, grad_output=values[: shape.numel()].reshape(shape)),)


def _layouts(problem: Problem) -> Variants:
    own = problem.operands
    for (name, values), (title, change) in product(own.items(), LAYOUTS.items()):
        if values.dim() == 2 or change is every_second:
            yield f"{name} {title}", partial(problem.like, {**own, name: change(values)})
    for title, shape in LEADING.items():
        yield title, partial(_leading, problem, shape)


def _leading(problem: Problem, shape: Shape) -> Problem:
    """Return the problem with its tokens in other dimensions, or some of them."""
    count = torch.Size(shape).numel()
    hidden, numbers = problem.case.spec.names[:2]
    own: Operands = dict(problem.operands)
    own[hidden] = own[hidden][:count].reshape(*shape, own[hidden].shape[-1])
    own[numbers] = own[numbers][:count].reshape(shape)
    return problem.like(own)


PLAN_SHAPE = (1100, 16, 512)
"""Enough rows for two chunks and more."""
_FEW_NUMBERS = 64
"""Bytes for each token that a plan does not count."""


def _budgets(case: Case) -> dict[str, int]:
    """Return a budget for each kind of plan that a case may have."""
    spec, (rows, width, classes) = case.spec, case.shape
    assert isinstance(spec, LinearSpec)
    size = Size(rows, width, classes, case.item_bytes, bent=case.params["softcap"] != 0)
    found: dict[str, int] = {WHOLE: 0, SLICES: least(size).bytes}
    if case.reduction != "none":
        found[CHUNKS] = chunks(size, rows // 2).bytes
    return found


def _is_planned(case: Case, implementation: Implementation) -> bool:
    """Tell whether an implementation keeps to budgets.

    On a CPU products of 16 bits take copies of their operands in float32, which no budget counts.
    """
    if case.placement:  # the shard is copied, too
        return False
    return implementation.temporaries == 0 and (case.device != "cpu" or case.item_bytes >= 4)


@check(
    place=150,
    catches="parts that do not add up, a target in another slice, more memory than the budget",
    advice="Add the parts of the logits up to what the whole gives.",
    adapt=of_shape(PLAN_SHAPE),
    units=(HIDDEN_STATE,),
)
def linear_plans(problem: Problem, subject: Subject, tally: Tally) -> None:
    """Check every way in which the logits are made in parts, by budgets of memory.

    For losses of hidden states: a budget for all logits at once, for chunks of tokens and for
    slices of classes; of losscli's own kernels also what a call holds: it may be the budget and a
    few numbers for each token.
    """
    for kind, budget in _budgets(problem.case).items():
        case = structs.replace(
            problem.case, params={**problem.case.params, MEMORY_BUDGET.name: float(budget)}
        )
        if subject.implementation.unavailable(case):
            continue  # it takes no budget
        own = bind(subject.implementation, case)
        name = f"{kind}, a budget of {format_bytes(budget)}" if budget else kind
        for incoming in dict.fromkeys((problem.usual, problem.others[-1])):
            call = problem.call(incoming)
            tally.judge_variant(name, problem, incoming, own.send(call), by_incoming=True)
        if budget and _is_planned(case, subject.implementation):
            extra = own.send(ExtraBytes(problem.call(problem.usual)))
            if extra > budget + _FEW_NUMBERS * case.shape[0]:
                held = f"a call held {format_bytes(extra)} beside its results"
                tally.fail(f"expected at most the budget, but {held}", f"{name}: ")
