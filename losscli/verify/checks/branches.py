"""Checks every branch of the loss, and its kinks.

Catches: a formula of one branch only, a missing clamp, ``<`` for ``<=`` where it matters, a kink in
the wrong place. A case does not test a branch that its inputs do not reach (uniform inputs never
clamp a hinge with a margin of 1.5), or a kink that they do not meet. So the check also runs a small
case with inputs on every branch, exactly at the kinks, and at the next numbers below and above
them. A kink that the dtype cannot represent lies between two numbers: an implementation that is
held to the oracle has to be right on both sides of it. The check counts the share of the elements
on each side of each kink, and the result names a branch with less than 1 %. The check does not
apply to a loss without a kink.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import prod

import torch
from msgspec.structs import replace
from torch import Tensor

from losscli.cases import Case
from losscli.implementations.subject import Subject
from losscli.losses import ELEMENT, Shape
from losscli.runs.records import PASS, VerifyResult
from losscli.truth.problem import Problem
from losscli.truth.tolerances import Verdict
from losscli.truth.worst import Worst
from losscli.verify.checks.check import Check
from losscli.verify.checks.expectation import judge

STARVED = 0.01
"""Of the elements: a branch with fewer could be wrong, and a mean hardly show it."""
SHAPE = (30, 59)
"""Odd, so that targets of either sign meet every coordinate."""
_REACH = (0.25, 1.0, 3.0)
"""How far beyond the outermost kinks, over their own size or 1."""


def _run(problem: Problem, subject: Subject) -> Iterator[VerifyResult]:
    """Judge the small case, and say of the given one which branch it starves."""
    shares = problem.branch_shares
    worst = Worst()
    worst.add(Verdict(PASS), None, "")
    # Drawn at random, hardly an input lies on a kink: the small case is put in any event.
    where, supplemented = "in inputs on every branch", ""
    if min(shares.values()) < STARVED:
        counted = ", ".join(f"{100 * share:.1f} % {name}" for name, share in shares.items())
        where, supplemented = f"{counted}; {where}", f"{counted}: supplemented"
    own = problem.variant("branches", lambda: supplement(problem))
    fresh = subject.again()
    judge(own, own.usual, "loss", fresh.loss(own.operands), where, worst)
    for incoming in dict.fromkeys((own.usual, own.others[-1])):
        answer = fresh.answer(own.call(incoming))
        for name, got in answer.items().items():
            if name != "loss" or incoming is own.usual:
                judge(own, incoming, name, got, where, worst)
    if subject.implementation.held_to_oracle and _rounded(problem):
        close = problem.variant("rounded kinks", lambda: supplement(problem, _rounded(problem)))
        answer = fresh.answer(close.call(close.usual))
        for name, got in answer.items().items():
            judge(close, close.usual, name, got, "next to a kink that the dtype rounds", worst)
    result = worst.result(problem, subject.name, "branches")
    yield replace(result, reason=result.reason or supplemented)


def has_branches(case: Case) -> bool:
    """Tell whether a loss has a kink, and the case an element on either side of it."""
    return all(map(prod, case.shapes.values())) and len(case.spec.branches(case.params)) > 1


def supplement(problem: Problem, at: Sequence[float] = ()) -> Problem:
    """Return a small problem whose inputs lie on every branch and at the kinks.

    ``at``: coordinates to be met instead of the kinks, with the numbers next to them.
    """
    spec = problem.case.spec
    case = problem.case.reshaped(SHAPE, distribution="own")
    dtype, device = problem.prediction.dtype, problem.prediction.device
    others = {name: values.to(dtype) for name, values in short_operands(case).items()}
    beside = [values.double().expand(SHAPE) for values in others.values()]
    kinks = spec.kinks(case.params)
    met = at or _exact(kinks, dtype)
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


def short_operands(case: Case) -> dict[str, Tensor]:
    """Return all operands but the prediction, of float64 on the CPU: short values in turn.

    Those after the target change more slowly, so that each of their values meets each target.
    """
    repeats, operands = 1, {}
    for operand in case.spec.operands[1:]:
        values = [value for value in operand.domain.short for _ in range(repeats)]
        operands[operand.name] = _in_turn(values, case.shapes[operand.name])
        repeats *= len(operand.domain.short)
    return operands


def _in_turn(values: Sequence[float], shape: Shape) -> Tensor:
    """Return values, which repeat, in a shape."""
    count = prod(shape)
    repeated = torch.tensor(values, dtype=torch.float64).repeat(-(-count // len(values)))
    return repeated[:count].view(shape)


def _between(kinks: tuple[float, ...]) -> list[float]:
    """Return coordinates on every branch, away from the kinks."""
    below, above = kinks[0], kinks[-1]
    inside = [
        low + (high - low) * share
        for low, high in pairwise(kinks)
        for share in (0.125, 0.375, 0.75)
    ]
    beyond = [(below - r * (abs(below) or 1), above + r * (abs(above) or 1)) for r in _REACH]
    return inside + [coordinate for pair in beyond for coordinate in pair]


def _exact(kinks: tuple[float, ...], dtype: torch.dtype) -> list[float]:
    """Return the kinks that a dtype holds.

    Beside one that it does not, 0.3 say, the dtype's own kink is not that of the oracle.
    """
    held: Tensor = torch.tensor(kinks, dtype=torch.float64)
    return held[held.to(dtype).double() == held].tolist()


def _rounded(problem: Problem) -> list[float]:
    """Return the numbers nearest to the kinks that the dtype of a problem does not hold."""
    kinks = torch.tensor(problem.case.spec.kinks(problem.case.params), dtype=torch.float64)
    nearest = kinks.to(problem.prediction.dtype).double()
    return nearest[(nearest != kinks) & nearest.isfinite()].tolist()


CHECK = Check(
    "branches",
    "forward_backward",
    _run,
    asks=has_branches,
    needs="losses with a kink, and cases with elements",
    units=(ELEMENT,),
)
