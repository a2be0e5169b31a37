"""Checks of the values that rows hold, and of class numbers that are no class."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from losscli.cases.case import Case
from losscli.implementations.call_data import Operands
from losscli.implementations.errors import SubjectError
from losscli.implementations.subject import Subject
from losscli.losses import CLASS_NUMBERS, HIDDEN_STATE, MASK, ROW, RowSpec
from losscli.losses.domain import SHARES
from losscli.losses.rows.forms import IGNORE_INDEX, ignored_index
from losscli.losses.rows.spec import LOGITS, SCORES, VECTORS, Content
from losscli.truth.problem import Problem
from losscli.verify.checks.check import Tally, check, of_shape, paths

SHAPE = (12, 131)
"""Odd rows; the planted class goes through all of a vector's lanes."""
LONG = (5, 1031)
"""Rows that kernels walk in several steps; the planted class goes through these."""
CONFIDENT = 30.0
"""A logit so far above the others that they hardly count."""
LARGE = 1e4
"""A logit of which float32 holds no exponential."""
SHORT = 1e-4
"""A factor that makes squares small beside those of the other rows."""


def _planted_class(logits: Tensor) -> Tensor:
    """Return one class of each row."""
    rows, classes = logits.shape
    step = classes // rows | 1
    return (torch.arange(rows, device=logits.device) * step + 3) % classes


def _with_one(logits: Tensor, one: float) -> Tensor:
    """Return the logits with a number in one class of each row."""
    return logits.scatter(1, _planted_class(logits)[:, None], one)


CONTENTS: dict[Content, dict[str, Callable[[Tensor], Tensor]]] = {
    LOGITS: {
        "one class far above the others": lambda logits: _with_one(logits, CONFIDENT),
        "one class far below the others": lambda logits: _with_one(logits, -CONFIDENT),
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
        "short vectors": lambda rows: rows * SHORT,
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
"""What is planted into rows, by what they hold."""
PAIRS: dict[str, Callable[[Tensor], Tensor]] = {
    "equal to the": torch.clone,
    "opposite to the": torch.neg,
}
"""Operands that are made of the prediction."""
SHARED: dict[str, Callable[[Tensor], Tensor]] = {
    "of a sum above 1": lambda log_probs: log_probs.log_softmax(1) + 0.25,
    "of one class alone": lambda log_probs: _with_one(torch.full_like(log_probs, -math.inf), -0.5),
}
"""The log-probabilities of some classes."""
IGNORED: dict[str, Callable[[Tensor], Tensor]] = {
    "no row ignored": lambda place: place < 0,
    "the first row ignored": lambda place: place == 0,
    "every second row ignored": lambda place: place % 2 == 1,
    "all rows but one ignored": lambda place: place != 7,
    "all rows ignored": lambda place: place >= 0,
}


def _is_special(variant: str) -> bool:
    return any(each in variant for each in ("infinity", "NaN", "zeros"))


@check(adapt=of_shape(SHAPE, scale=1.0), units=(ROW,), limits=_is_special)
def row_values(problem: Problem, subject: Subject, tally: Tally) -> None:
    """Check rows whose values need care.

    Catches: a maximum that is not subtracted, so that exponentials overflow; rows of minus infinity
    but for one class, as masked logits are, that become NaN; a loss of a very confident row that
    loses all digits; ties; log-probabilities of some classes whose sum is not 1; vectors of length
    0, or of very different lengths; operands that are equal or opposite; ignored or masked rows
    whose loss or gradient is not 0, or which a mean counts; NaN that a masked row holds; NaN, or
    none, where all rows are ignored. The check judges the loss and all gradients, for an incoming
    gradient of 1 and one other.
    """
    tally.judge_variants(problem, subject, _variants(problem))


def _variants(problem: Problem) -> Iterator[tuple[str, Callable[[], Problem]]]:
    """Yield each kind of rows by its name, first in the prediction, then in others like it."""
    spec = problem.case.spec
    assert isinstance(spec, RowSpec)
    first, *others = _alike(problem)
    for name, change in CONTENTS[spec.holds].items():
        for operand in (first, *others):
            title = name if operand == first else f"{name}, in the {operand}"
            yield title, partial(_changed, problem, operand, change)
            yield f"{title}, long rows", partial(_long, problem, operand, change)
    for other, (name, change) in itertools.product(others, PAIRS.items()):
        yield f"{other} {name} {first}", partial(_paired, problem, other, change)
    shares = [operand.name for operand in spec.operands if operand.domain == SHARES]
    for name, (title, change) in itertools.product(shares, SHARED.items()):
        log_probs = change(problem.operands[name])
        yield f"{name} {title}", partial(problem.like, {**problem.operands, name: log_probs})
    ignores = ignored_index(problem.case.params) is not None
    masks = any(operand.kind == MASK for operand in spec.operands)
    for name, where in IGNORED.items() if ignores or masks else ():
        yield name, partial(ignoring, problem, where)
        if masks:
            yield f"{name}, which hold NaN", partial(ignoring, problem, where, holding=math.nan)


def _alike(problem: Problem) -> list[str]:
    """Return the names of the operands that are rows as the prediction is."""
    return [
        operand.name
        for operand in problem.case.spec.operands
        if operand.differentiable
        and operand.domain == problem.case.spec.operands[0].domain
        and problem.operands[operand.name].shape == problem.prediction.shape
    ]


def _changed(problem: Problem, name: str, change: Callable[[Tensor], Tensor]) -> Problem:
    """Return the problem with other rows; half the targets are the class that is planted."""
    rows = problem.operands[name]
    operands: Operands = {**problem.operands, name: change(rows)}
    for operand in problem.case.spec.operands:
        if operand.kind == CLASS_NUMBERS:
            target = operands[operand.name].clone()
            numbers = target.view(len(target), -1)[::2]
            planted = _planted_class(rows).to(target)[::2, None]
            # Of several classes of a row it is the first; what it was takes the place of another.
            numbers.copy_(torch.where(numbers == planted, numbers[:, :1], numbers))
            numbers[:, :1] = planted
            operands[operand.name] = target
    return problem.like(operands)


def _long(problem: Problem, name: str, change: Callable[[Tensor], Tensor]) -> Problem:
    """Return the problem with other rows, long ones."""
    return _changed(problem.reshaped(LONG), name, change)


def _paired(problem: Problem, name: str, change: Callable[[Tensor], Tensor]) -> Problem:
    """Return the problem with an operand that is made of the prediction."""
    return problem.like({**problem.operands, name: change(problem.prediction)})


def ignoring(
    problem: Problem, where: Callable[[Tensor], Tensor], holding: float | None = None
) -> Problem:
    """Return the problem with some rows ignored or masked, and no others.

    ``holding``: what these rows hold; None for what they held.
    """
    operands = dict(problem.operands)
    for operand in problem.case.spec.operands:
        given = operands[operand.name]
        place = torch.arange(len(given), device=given.device)
        if operand.kind == CLASS_NUMBERS:
            # Beside a mask there may be none.
            if IGNORE_INDEX.name not in problem.case.params:
                continue
            ignored = int(problem.case.params[IGNORE_INDEX.name])
            kept = torch.where(given == ignored, 0 if ignored else 1, given)
            operands[operand.name] = kept.masked_fill(where(place), ignored)
        elif operand.kind == MASK:
            operands[operand.name] = ~where(place)
        elif holding is not None and operand.name in problem.case.spec.promoted:
            operands[operand.name] = given.masked_fill(where(place)[:, None], holding)
    return problem.like(operands)


ROW_OF_WRONG = 4


def _has_numbers(case: Case) -> bool:
    return any(operand.kind == CLASS_NUMBERS for operand in case.spec.operands)


@check(
    pass_="forward",
    adapt=of_shape((7, 37), scale=1.0),
    units=(ROW, HIDDEN_STATE),
    asks=_has_numbers,
    needs="losses of class numbers",
)
def wrong_targets(problem: Problem, subject: Subject, tally: Tally) -> None:
    """Check class numbers that are no class.

    Catches: a read beyond the end of a row, or before its begin, that comes back as a loss. On the
    CPU each such target has to raise an error, as PyTorch's does, and the call after it has to be
    right. On a GPU, where PyTorch's assertion ends the process's use of the device, the check
    applies to losscli's own kernels, which promise NaN for the row.
    """
    on_cpu = problem.case.device == "cpu"
    name = next(o.name for o in problem.case.spec.operands if o.kind == CLASS_NUMBERS)
    if on_cpu or subject.implementation.held_to_oracle:
        for number in (-1, problem.case.classes, problem.case.classes + 2**20):
            wrong = problem.variant(str(number), partial(_with_target, problem, name, number))
            for wrt in paths(problem).values():
                text = _judge_refusal(wrong, subject, wrt, on_cpu=on_cpu)
                if text:
                    tally.fail(text, f"{name} of {number}: ")
    tally.add(*problem.judge_loss(subject.loss(problem.operands)), "after wrong targets: ")


def _judge_refusal(
    problem: Problem, subject: Subject, wrt: tuple[str, ...], *, on_cpu: bool
) -> str:
    """Say what is wrong with the answer to a wrong target; empty if nothing is."""
    try:
        loss = subject.loss(problem.operands, wrt)
    except SubjectError:
        return "" if on_cpu else "expected NaN for the row, got an error"
    if on_cpu:
        return "expected an error, got none"
    # Of several values of a row, the first.
    row = (loss[..., ROW_OF_WRONG] if problem.case.reduction == "none" else loss).flatten()[0]
    return "" if bool(row.isnan()) else f"expected NaN for the row, got {float(row):.9g}"


def _with_target(problem: Problem, name: str, number: int) -> Problem:
    target = problem.operands[name].clone()
    target[ROW_OF_WRONG] = number
    return problem.like({**problem.operands, name: target})
