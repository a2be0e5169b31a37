"""Checks relations between answers of an implementation, independent of the oracle.

They hold within tolerances: bitwise equality is promised only for the same shape and order.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import msgspec
import torch
from torch import Tensor

from losscli.cases.case import Case
from losscli.implementations.local import Operands
from losscli.implementations.requests import Answer
from losscli.implementations.subject import Subject, bind
from losscli.losses import CLASS_INDICES, ROW, find_loss
from losscli.losses.rows.forms import ignored_index
from losscli.reasons import Code
from losscli.runs.records import FAIL, WARN
from losscli.truth.excuse import LUCK
from losscli.truth.oracle import wide
from losscli.truth.problem import Judged, Problem
from losscli.truth.tolerances import Outcome
from losscli.verify.checks.check import Cost, Tally, check
from losscli.verify.geometry.geometry import of_shape

SHAPE = (12, 131)
"""Rows of no whole vectors; two different extents."""
PARTS = (1, 5, 6)
STEP = 1 / 8
"""Shifted logits are multiples of it."""
LARGER = 2.0
"""How much larger the spacing at a part, times its share, may be than at their product."""

Judgements = Iterator[tuple[str, Judged]]
"""Judged parts of an answer, by name."""
Relate = Callable[[Problem, Subject], Judgements]


def _excused(relate: Relate, problem: Problem, part: str, judged: Judged) -> Judged:
    """Turn a failure into a warning if PyTorch's own formula is as far from the relation."""
    outcome, errors = judged
    if errors is None:
        return judged
    luck = LUCK if problem.of_others else 1.0
    for own in problem.torchs_own:
        for other, (_, found) in relate(problem, own):
            if other == part and found and luck * found.ulp >= errors.ulp:
                return Outcome(WARN, outcome.reason, Code.SAME_ERROR_AS_PYTORCH), errors
    return judged


def _base(problem: Problem) -> Problem:
    first, *others = problem.case.spec.operands
    limit = 8.0 - STEP
    logits = problem.operands[first.name]
    short = (logits.double() / STEP).round().mul(STEP).clamp(-limit, limit).to(logits)
    operands: Operands = {first.name: short}
    ignored = ignored_index(problem.case.params)
    for operand in others:
        if operand.kind == CLASS_INDICES and ignored is not None:
            operands[operand.name] = problem.operands[operand.name].clone()
            operands[operand.name][[2, 7]] = ignored
    return problem.like(operands)


def _pairs(
    problem: Problem, answer: Answer, other: Answer, *scaled: Problem, larger: float = 1.0
) -> Judgements:
    """Judge one answer by another, at ``larger`` times the terms of the problem and ``scaled``."""
    before = other.items()
    for part, got in answer.items().items():
        if part in before:
            scales = [each.scale_of(part, problem.usual) for each in (problem, *scaled)]
            scale = torch.stack(scales).amax(0) * larger
            yield part, problem.judge_pair(part, got, before[part], scale)


def _answer(problem: Problem, subject: Subject, operands: Operands | None = None) -> Answer:
    return subject.send(problem.call(problem.usual, operands))


def _of_other(
    problem: Problem, subject: Subject, case: Case, operands: Operands | None = None
) -> Answer | None:
    """Answer with another loss, or None; a file may define another function of that name."""
    if subject.implementation.file or subject.implementation.unavailable(case):
        return None
    return _answer(problem, bind(subject.implementation, case), operands)


def _class_dimensions(problem: Problem, values: Tensor) -> list[int]:
    return [n for n, extent in enumerate(values.shape) if extent == problem.case.classes]


def _shifted(problem: Problem, subject: Subject) -> Judgements:
    """Add a number to each row's logits; all sums are exact."""
    name = problem.case.spec.names[0]
    logits = problem.operands[name]
    # Next to a shift of the latter a step is the last digit.
    farthest = min(1024.0, STEP / torch.finfo(logits.dtype).eps)
    steps = torch.tensor([1.0, -1.0, 0.5, -0.5, 0.0], device=logits.device)
    by_row = steps[torch.arange(len(logits), device=logits.device) % len(steps)] * farthest
    (dimension,) = _class_dimensions(problem, logits)
    rows = logits + by_row.unsqueeze(dimension).to(logits)
    shifted = problem.variant("shifted", lambda: problem.like({name: rows}))
    answer = _answer(problem, subject, shifted.operands)
    yield from _pairs(problem, answer, _answer(problem, subject), shifted)


def _sums(problem: Problem, subject: Subject) -> Judgements:
    """Judge the sum of each row's gradient, which is zero if shifts change nothing."""
    name = problem.case.spec.names[0]
    (dimension,) = _class_dimensions(problem, problem.operands[name])
    gradient = _answer(problem, subject).gradients[name]
    yield f"{name} gradient", problem.judge_sum_of_rows(name, gradient, problem.usual, dimension)


def _reordered(problem: Problem, subject: Subject) -> Judgements:
    """Judge the answer to reordered classes, with its gradients in the original order."""
    order, place = _order(problem)
    operands: Operands = {}
    for operand in problem.case.spec.operands:
        values = problem.operands[operand.name]
        if operand.kind == CLASS_INDICES:
            is_class = (values >= 0) & (values < len(place))
            numbers = torch.where(is_class, values, 0).long()
            values = torch.where(is_class, place[numbers].to(values), values)
        else:
            values = _taken(problem, values, order)
        operands[operand.name] = values
    answer = _answer(problem, subject, operands)
    back = {
        name: None if gradient is None else _taken(problem, gradient, place)
        for name, gradient in answer.gradients.items()
    }
    yield from _pairs(problem, Answer(answer.loss, back), _answer(problem, subject))


def _order(problem: Problem) -> tuple[Tensor, Tensor]:
    """Return a random order of classes and its inverse; an ignored class keeps its place."""
    generator = torch.Generator().manual_seed(problem.case.seed)
    order = torch.randperm(problem.case.classes, generator=generator)
    ignored = ignored_index(problem.case.params)
    if ignored is not None and 0 <= ignored < len(order):
        place = int((order == ignored).nonzero())
        order[place], order[ignored] = order[ignored].clone(), ignored
    device = problem.oracle.device
    return order.to(device), order.argsort().to(device)


def _taken(problem: Problem, values: Tensor, order: Tensor) -> Tensor:
    for dimension in _class_dimensions(problem, values):
        values = values.index_select(dimension, order)
    return values


def _in_parts(problem: Problem, subject: Subject) -> Judgements:
    """Judge the mean of a batch by those of its parts, weighted by their rows' counts."""
    shared = {name for name in problem.operands if problem.oracle.is_summed(name)}
    counts, params = getattr(problem.case.spec, "counts", None), problem.case.params
    total, losses = 0.0, list[Tensor]()
    gradients: dict[str, list[Tensor]] = {n: [] for n in problem.wrt if n not in shared}
    start = 0
    for rows in PARTS:
        cut = slice(start, start := start + rows)
        operands = {n: x if n in shared else x[cut] for n, x in problem.operands.items()}
        answer = _answer(problem, subject, operands)
        count = float(counts(*wide(operands).values(), **params).sum()) if counts else rows
        total += count
        loss = answer.loss.double()
        losses.append(loss * count if count else torch.zeros_like(loss))
        for name, parts in gradients.items():
            found = answer.gradients[name]
            known = torch.zeros_like(operands[name]) if found is None else found
            parts.append(known.double() * count)
    joined = {name: torch.cat(parts) / total for name, parts in gradients.items()}
    other = Answer(torch.stack(losses).sum() / total, dict(joined))
    yield from _pairs(problem, _answer(problem, subject), other, larger=LARGER)


def _numbered(problem: Problem, subject: Subject) -> Judgements:
    """Judge one-hot targets by class indices."""
    case, spec = problem.case, find_loss(problem.case.spec.relations.numbered)
    shape = spec.default_target_shape(case.shape)
    params = spec.resolve(case.params)
    other = msgspec.structs.replace(case, loss=spec.name, params=params, target_shape=shape)
    target = case.spec.names[1]
    (dimension,) = _class_dimensions(problem, problem.prediction)
    number = torch.arange(shape[0], device=problem.oracle.device) * 11 % case.classes
    rows = torch.zeros_like(problem.operands[target]).scatter(dimension, number[:, None], 1.0)
    one_hot, numbered = problem.like({target: rows}), problem.like({target: number}, other)
    if found := _of_other(numbered, subject, other):  # which has no gradient of the target
        yield from _pairs(one_hot, _answer(one_hot, subject), found)


def _mirrored(problem: Problem, subject: Subject) -> Judgements:
    """Judge the mirror loss of exchanged operands by the loss."""
    relations, (one, two, *_) = problem.case.spec.relations, problem.case.spec.names
    own = problem.operands
    exchanged = {**own, one: own[two], two: own[one]}
    mirror = problem.variant("mirrored", lambda: problem.like(exchanged))
    params = relations.mirrored(problem.case.params)
    if found := _related(problem, subject, relations.mirror, params, exchanged):
        other = {one: two, two: one}
        back = {other.get(name, name): each for name, each in found.gradients.items()}
        yield from _pairs(problem, Answer(found.loss, back), _answer(problem, subject), mirror)


def _beyond(problem: Problem, subject: Subject) -> Judgements:
    """Judge a cross entropy by a divergence plus the target's entropy, its loss with itself."""
    one, two, *_ = problem.case.spec.names
    loss, own = problem.case.spec.relations.distance, problem.operands
    least = problem.variant("equal", lambda: problem.like({one: own[two]}))
    if distance := _related(problem, subject, loss, problem.case.params, own):
        beyond = distance.loss.double() + _answer(problem, subject, least.operands).loss.double()
        joined = Answer(beyond, {one: distance.gradients[one]})
        # What is compared with the loss are two losses more.
        yield from _pairs(problem, _answer(problem, subject), joined, least, larger=LARGER)


def _related(
    problem: Problem, subject: Subject, loss: str, params: Mapping[str, float], operands: Operands
) -> Answer | None:
    """Answer with a loss of the same operands; None if the run does not have it."""
    if loss == problem.case.loss and params == problem.case.params:
        return _answer(problem, subject, operands)
    if loss not in (problem.case.loss, *problem.beside.get(subject.name, ())):
        return None
    other = msgspec.structs.replace(problem.case, loss=loss, params=dict(params))
    return _of_other(problem, subject, other, operands)


def _has_numbered(problem: Problem) -> bool:
    """Tell whether the loss also takes class indices; a weighted mean differs."""
    shared = any(operand.shared for operand in problem.case.spec.operands)
    numbered = problem.case.spec.relations.numbered
    return bool(numbered) and not (shared and problem.case.reduction == "mean")


def _is_shifted(problem: Problem) -> bool:
    return problem.case.spec.relations.shifted(problem.case.params)


RELATIONS: dict[str, tuple[Callable[[Problem], bool], Relate]] = {
    "a number added to the logits of each row": (_is_shifted, _shifted),
    "the sum of each row's gradient": (_is_shifted, _sums),
    "classes in another order": (lambda p: p.case.spec.relations.reordered, _reordered),
    "the mean of parts": (lambda p: p.case.reduction == "mean", _in_parts),
    "one 1 in each row of the target": (_has_numbered, _numbered),
    "exchanged operands": (lambda p: bool(p.case.spec.relations.mirror), _mirrored),
    "a distance and an entropy": (lambda p: bool(p.case.spec.relations.distance), _beyond),
}
"""Whether each holds, and its judgements."""


@check(
    place=100,
    facet="value",
    catches="a mistake that the reference formula also makes, a maximum that rows share, results "
    "that depend on the order of the classes",
    advice="Subtract the largest logit of each row, treat all classes alike, and derive the "
    "gradient from the loss: that of a row sums up to zero.",
    cost=Cost.QUICK,
    adapt=of_shape(SHAPE, scale=1.0),
    units=(ROW,),
    limits=lambda relation, _: relation.startswith("a number added"),
)
def row_relations(problem: Problem, subject: Subject, tally: Tally) -> None:
    """Check relations between results of an implementation.

    For row-wise losses, where the spec declares them: shifted logits, the sum of each row's
    gradient, permuted classes, a batch in parts, one-hot probabilities and class indices, exchanged
    operands, a cross entropy and a divergence plus an entropy.
    """
    base = problem.variant("a few rows ignored", lambda: _base(problem))
    base = replace(base, beside=problem.beside)
    for name, (holds, relate) in RELATIONS.items():
        for part, judged in relate(base, subject) if holds(base) else ():
            if judged[0].status == FAIL and not subject.implementation.held_to_oracle:
                judged = _excused(relate, base, part, judged)
            tally.count(name, part, judged)
    relations = problem.case.spec.relations
    related = {relations.mirror, relations.distance} - {problem.case.loss}
    beside = problem.beside.get(subject.name, ())
    tally.interleaved = tuple(loss for loss in beside if loss in related)
