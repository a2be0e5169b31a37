"""Checks of losses of hidden states: their values, sizes, layouts and plans."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import torch
from msgspec import structs
from torch import Tensor

from losscli.cases.case import Case
from losscli.implementations import Implementation
from losscli.implementations.call_data import Operands
from losscli.implementations.subject import Subject, bind
from losscli.losses import HIDDEN_STATE, LinearSpec, Shape
from losscli.losses.linear.plan import CHUNKS, SLICES, WHOLE, Size, chunks, least
from losscli.losses.linear.spec import MEMORY_BUDGET
from losscli.losses.rows.forms import ignored_index
from losscli.truth.inputs import no_value
from losscli.truth.problem import Problem
from losscli.units import format_bytes
from losscli.verify.checks.check import COPIES, Tally, check, of_shape
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


def _with_tie(layer: Layer) -> Layer:
    """Return a layer with a class whose logits are those of another, far above the rest."""
    hidden, weight = _with_offset(layer, CONFIDENT, slice(ONE_CLASS, ONE_CLASS + 1))
    weight[-1] = weight[ONE_CLASS]
    return hidden, weight


_ONE = slice(ONE_CLASS, ONE_CLASS + 1)
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


@check(adapt=of_shape(SHAPE, scale=1.0), units=(HIDDEN_STATE,))
def linear_values(problem: Problem, subject: Subject, tally: Tally) -> None:
    """Check hidden states and weights whose logits need care.

    Catches: a maximum that is not subtracted, so that exponentials overflow, also where all logits
    are large alike; a loss of a very confident token that loses all digits; ties; ignored tokens
    whose loss or gradient is not 0, or which a mean counts, and NaN, or none, where all are
    ignored; an incoming gradient that is not multiplied by each token's own. Half of the targets
    are the class that is far from the others. The check judges the loss and all gradients, for an
    incoming gradient of 1 and one other.
    """
    tally.judge_variants(problem, subject, _variants(problem))


def _variants(problem: Problem) -> Iterator[tuple[str, Callable[[], Problem]]]:
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


SIZES: tuple[Shape, ...] = (
    (1, 1, 1),
    (1, 24, 1000),
    (5, 1, 7),
    (3, 8, 1),
    (0, 24, 101),
    (1031, 8, 3),
    (129, 64, 129),
    (67, 33, 1025),
    (3, 16, 50257),
)
"""Tokens, width and classes: one of each, none, around tiles of products, and a vocabulary."""


@check(adapt=of_shape(SHAPE), mean_for_sum=True, units=(HIDDEN_STATE,))
def linear_sizes(problem: Problem, subject: Subject, tally: Tally) -> None:
    """Check the sizes of hidden states.

    Catches: the last tokens, numbers or classes left out; one class or one number in a hidden
    state; no tokens at all. The check judges the loss and all gradients.
    """
    for shape in SIZES:
        name = "{} tokens of {}, {} classes".format(*shape)
        variant = problem.variant(name, partial(problem.reshaped, shape))
        answer = subject.answer(variant.call(variant.usual))
        tally.judge_variant(name, variant, variant.usual, answer)


def _strided(values: Tensor) -> Tensor:
    """Return the values in every second place of memory that holds no values between them."""
    shape = (*values.shape[:-1], 2 * values.shape[-1])
    whole = values.new_full(shape, no_value(values.dtype))
    whole[..., ::2] = values
    return whole[..., ::2]


def _transposed(values: Tensor) -> Tensor:
    return values.t().contiguous().t() if values.dim() == 2 else values


def _cut_out(values: Tensor) -> Tensor:
    """Return the values inside of larger memory."""
    shape = [extent + 2 for extent in values.shape]
    whole = values.new_full(shape, no_value(values.dtype))
    inner = whole[(slice(1, -1),) * values.dim()]
    return inner.copy_(values)


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "transposed": _transposed,
    "in every second place": _strided,
    "cut out of a larger one": _cut_out,
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
    adapt=of_shape(SHAPE, scale=1.0),
    mean_for_sum=True,
    units=(HIDDEN_STATE,),
    limits=lambda variant: True,
    one_process=COPIES,
)
def linear_layouts(problem: Problem, subject: Subject, tally: Tally) -> None:
    """Check hidden states and weights of other strides, and tokens in several dimensions.

    Catches: a kernel that assumes contiguous rows, a gradient in other strides that is wrong, one
    hidden state without a dimension of tokens, several of these, targets of other dtypes read as
    int64. Memory between values holds NaN, and what is no class.
    """
    for name, make in _layouts(problem):
        variant = problem.variant(name, make)
        incoming = variant.usual
        if problem.case.reduction == "none":
            shape = variant.oracle.unreduced_shape
            own = incoming.grad_output[: shape.numel()].reshape(shape)
            incoming = replace(incoming, grad_output=own)
        answer = subject.again().answer(variant.call(incoming))
        tally.judge_variant(name, variant, incoming, answer)


def _layouts(problem: Problem) -> Iterator[tuple[str, Callable[[], Problem]]]:
    own = problem.operands
    for (name, values), (title, change) in (
        (item, layout) for item in own.items() for layout in LAYOUTS.items()
    ):
        if values.dim() == 2 or change is _strided:
            yield f"{name} {title}", partial(problem.like, {**own, name: change(values)})
    for title, shape in LEADING.items():
        yield title, partial(_leading, problem, shape)


def _leading(problem: Problem, shape: Shape) -> Problem:
    """Return the problem with its tokens in other dimensions, or some of them."""
    count = torch.Size(shape).numel()
    hidden, numbers = problem.case.spec.names[:2]
    own: Operands = dict(problem.operands)
    own[hidden] = (
        own[hidden][:count].reshape(*shape, -1)
        if count
        else own[hidden].new_empty((*shape, own[hidden].shape[-1]))
    )
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


@check(adapt=of_shape(PLAN_SHAPE), units=(HIDDEN_STATE,))
def linear_plans(problem: Problem, subject: Subject, tally: Tally) -> None:
    """Check every way in which the logits are made in parts, by budgets of memory.

    Catches: parts that do not add up, sums of gradients in 16 bits, a target that lies in another
    slice, a maximum that slices do not share, more memory than the budget. There is a budget for
    all logits at once, for chunks of tokens and for slices of the classes. The check judges the
    loss and all gradients, for incoming gradients of 1 and one other, and of losscli's own kernels
    the memory of a call: it may be the budget and a few numbers for each token.
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
            tally.judge_variant(name, problem, incoming, own.answer(call), by_incoming=True)
        if budget and _is_planned(case, subject.implementation):
            extra = own.extra_bytes(problem.call(problem.usual))
            if extra > budget + _FEW_NUMBERS * case.shape[0]:
                held = f"a call held {format_bytes(extra)} beside its results"
                tally.fail(f"expected at most the budget, but {held}", f"{name}: ")
