"""Checks of a loss's branches and kinks, and of exact values on each branch."""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, pairwise
from math import prod

import torch
from torch import Tensor

from losscli.cases.case import Case
from losscli.implementations.requests import Forward
from losscli.implementations.subject import Subject
from losscli.losses import ELEMENT, LOSS
from losscli.truth.distances import first_difference
from losscli.truth.problem import Problem
from losscli.truth.tolerances import elements
from losscli.verify.checks.check import Cost, Tally, check
from losscli.verify.geometry.geometry import usual_and_other

SHAPE = (30, 59)
"""Odd, so that targets of either sign meet every coordinate."""


@check(
    place=40,
    facet="value",
    catches="a wrong formula on one branch, a missing clamp, `<` for `<=` where it matters, a "
    "parameter that is rounded to float32 first",
    advice="Check the formula of each branch, and to which branch its edges belong.",
    cost=Cost.QUICK,
    once=False,
    asks=lambda case: all(map(prod, case.shapes.values())) and bool(case.spec.kinks(case.params)),
    needs="losses with a non-differentiable point, and cases with elements",
    units=(ELEMENT,),
)
def branches(problem: Problem, subject: Subject, tally: Tally) -> None:
    """Check every branch of the loss, and the points where branches meet.

    A small case has values on every branch, on these points and next to them; for losscli's own
    kernels also next to points that are not exact in the dtype. On every case the result reports
    branches that the inputs do not reach.

    Random inputs may not reach a branch (uniform ones never clamp a hinge with a margin of 1.5),
    and hardly meet a kink. The result names a branch with less than 1 % of the elements.
    """
    shares = problem.branch_shares
    where = "in inputs on every branch"
    if min(shares.values()) < 0.01:  # a mean hardly shows that such a branch is wrong
        counted = ", ".join(f"{100 * share:.1f} % {name}" for name, share in shares.items())
        where, tally.note = f"{counted}; {where}", f"{counted}: supplemented"
    own = problem.variant("branches", partial(supplement, problem))
    fresh = subject.again()
    tally.judge_part(own, own.usual, LOSS, fresh.send(Forward(own.operands)), where)
    for incoming in dict.fromkeys(usual_and_other(own)):
        answer = fresh.send(own.call(incoming))
        tally.judge_answer(own, incoming, answer, where, loss=incoming is own.usual)
    if subject.implementation.held_to_oracle and (rounded := _rounded(problem)):
        close = problem.variant("rounded branch points", partial(supplement, problem, rounded))
        where = "next to a branch point that the dtype rounds"
        answer = fresh.send(close.call(close.usual))
        tally.judge_answer(close, close.usual, answer, where)


def supplement(problem: Problem, at: Sequence[float] = ()) -> Problem:
    """Return a small problem on every branch, and at the kinks or ``at`` other coordinates."""
    spec = problem.case.spec
    case = problem.case.reshaped(SHAPE, distribution="own")
    dtype, device = problem.prediction.dtype, problem.prediction.device
    others = {name: values.to(dtype) for name, values in _short_operands(case).items()}
    beside = [values.double().expand(SHAPE) for values in others.values()]
    kinks = spec.kinks(case.params)
    exact = torch.tensor(kinks, dtype=torch.float64)
    met = at or exact[exact.to(dtype).double() == exact].tolist()
    coordinates = torch.tensor([*_between(kinks), *met], dtype=torch.float64)
    at_kink = torch.arange(len(coordinates)) >= len(_between(kinks))
    number = torch.arange(prod(SHAPE)).view(SHAPE)
    kind = number % len(coordinates)
    input = spec.input_at(coordinates[kind], *beside).to(dtype)
    side = torch.where(at_kink[kind], number // len(coordinates) % 3, 0)
    for which, toward in ((1, torch.inf), (2, -torch.inf)):
        step = torch.nextafter(input, torch.full_like(input, toward))
        input = torch.where(side == which, step, input)
    input = spec.operands[0].domain.inside(input)
    operands = {spec.names[0]: input, **others}
    return problem.like({name: each.to(device) for name, each in operands.items()}, case)


def _short_operands(case: Case) -> dict[str, Tensor]:
    """Return the operands after the prediction in float64: all combinations of short values."""
    repeats, operands = 1, {}
    for operand in case.spec.operands[1:]:
        values = [value for value in operand.domain.short for _ in range(repeats)]
        shape = case.shapes[operand.name]
        turns = torch.tensor(values, dtype=torch.float64).repeat(-(-prod(shape) // len(values)))
        operands[operand.name] = turns[: prod(shape)].view(shape)
        repeats *= len(operand.domain.short)
    return operands


def _between(kinks: tuple[float, ...]) -> list[float]:
    below, above = kinks[0], kinks[-1]
    shares = 0.125, 0.375, 0.75
    inside = [low + (high - low) * share for low, high in pairwise(kinks) for share in shares]
    # Relative to the outermost kinks' size, or to 1.
    far = 0.25, 1.0, 3.0
    beyond = [(below - r * (abs(below) or 1), above + r * (abs(above) or 1)) for r in far]
    return [*inside, *chain.from_iterable(beyond)]


def _rounded(problem: Problem) -> list[float]:
    kinks = torch.tensor(problem.case.spec.kinks(problem.case.params), dtype=torch.float64)
    nearest = kinks.to(problem.prediction.dtype).double()
    return nearest[(nearest != kinks) & nearest.isfinite()].tolist()


EXACT_SHAPE = (4, 16)
"""A power of two elements; a target of one row repeats a power of two times."""
_BEYOND = (0.25, 0.5, 1.0)
"""Distances beyond the outermost kinks."""
NOTHING_EXACT = "no branch of the loss has exact values: nothing was checked"


def exact_case(case: Case) -> Case:
    """Return the case with parameters that are zero or powers of two."""
    params = {name: _few_bits(value) for name, value in case.params.items()}
    return case.reshaped(EXACT_SHAPE, params=params, distribution="normal", scale=1.0)


def _few_bits(value: float) -> float:
    if value == 0:
        return 0.0
    power = 2.0 ** math.floor(math.log2(abs(value)))
    return math.copysign(min(max(power, 0.25), 2.0), value)


@check(
    place=200,
    facet="value",
    catches="a reciprocal, constant or result that is off by a unit in the last place, which "
    "every tolerance allows",
    advice="Avoid needless roundings: no reciprocal instead of a division, no fast math.",
    adapt=exact_case,
    units=(ELEMENT,),
)
def exact(problem: Problem, subject: Subject, tally: Tally) -> None:
    """Check results on inputs whose arithmetic is exact in any order, bit for bit.

    Numbers of few bits, on each branch separately and on all together, with powers of two as
    parameters. A branch whose loss of such numbers has many bits, such as an exponential, is left
    out.
    """
    asked = list(_exact_branches(problem))
    for name, _, own in asked:
        _judge_bits(own, subject, f"on the branch '{name}'", tally)
    if len(asked) > 1:
        mixed = [coordinate for _, coordinates, _ in asked for coordinate in coordinates]
        together = problem.variant("all branches", partial(_placed, problem, mixed))
        _judge_bits(together, subject, "on all branches", tally)
    tally.note = "" if asked else NOTHING_EXACT


def _exact_branches(problem: Problem) -> Iterator[tuple[str, list[float], Problem]]:
    """Yield each branch with exact values: its name, coordinates, and a problem of them."""
    names = problem.case.spec.branches(problem.case.params)
    for name, coordinates in zip(names, _coordinates(problem), strict=True):
        own = problem.variant(name, partial(_placed, problem, coordinates))
        if _is_exact(own):
            yield name, coordinates, own


def has_exact_values(case: Case) -> bool:
    """Tell whether the check ``exact`` applies to a case's loss."""
    return any(True for _ in _exact_branches(Problem.of(exact_case(case))))


def _coordinates(problem: Problem) -> list[list[float]]:
    kinks = problem.case.spec.kinks(problem.case.params)
    if not kinks:
        return [[sign * by for by in _BEYOND for sign in (1, -1)]]
    shares = 0.25, 0.5, 0.75
    inside = [[low + (high - low) * share for share in shares] for low, high in pairwise(kinks)]
    below, above = [kinks[0] - by for by in _BEYOND], [kinks[-1] + by for by in _BEYOND]
    return [below, *inside, above]


def _placed(problem: Problem, coordinates: list[float]) -> Problem:
    spec, like = problem.case.spec, problem.prediction
    others = _short_operands(problem.case)
    beside = [values.expand(EXACT_SHAPE) for values in others.values()]
    # Each row begins with another coordinate, so that each target meets each coordinate.
    rows, columns = torch.arange(EXACT_SHAPE[0])[:, None], torch.arange(EXACT_SHAPE[1])
    number = (columns // len(spec.operands[1].domain.short) + rows) % len(coordinates)
    input = spec.input_at(torch.tensor(coordinates, dtype=torch.float64)[number], *beside)
    operands = {spec.names[0]: input, **others}
    return problem.like({name: each.to(like) for name, each in operands.items()})


def _is_exact(problem: Problem) -> bool:
    """Tell whether losses and gradients of all elements need no rounding."""
    shape = problem.oracle.shape
    wide = {
        name: each.double().expand(shape).clone().requires_grad_(name in problem.wrt)
        for name, each in problem.operands.items()
    }
    with torch.enable_grad():
        loss = elements(problem.case, wide)
    gradients = torch.autograd.grad(loss.sum(), [wide[name] for name in problem.wrt])
    dtype = problem.prediction.dtype
    # The dtype holds them and three times them; sums of 64 multiples of 2^-12 below 2^6 take 24.
    return all(
        bool(((x.to(dtype).double() == x) & ((x * 2**12).frac() == 0)).all())
        and bool(((x * 3).to(dtype).double() == x * 3).all())
        for x in (loss.detach(), *gradients)
    )


def _judge_bits(problem: Problem, subject: Subject, where: str, tally: Tally) -> None:
    for number in (1.0, -3.0):
        incoming = problem.filled(number, problem.wrt)
        for part, got in subject.send(problem.call(incoming)).items().items():
            wrong = problem.misfit(part, got)
            if not wrong and got is not None:
                (truth,) = problem.truths(part, incoming)
                wrong = first_difference(got, truth.value.to(got.dtype), 17, " exactly")
                wrong = wrong and f"{wrong}; these additions are exact in every order"
            if wrong:
                tally.fail(wrong, f"{where}, grad_output {number:g}, {part}: ")
