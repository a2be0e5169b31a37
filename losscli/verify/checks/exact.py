"""Checks results on inputs whose arithmetic is exact in any order.

Catches: a loss or gradient that is off by a unit in the last place and within every tolerance: a
reciprocal or a constant that is not the nearest, a truncated result, a term that is added twice.
The inputs and parameters are numbers of few bits, and a mean is over a power of two, so that the
accumulator represents all elements, products and sums exactly: the value and all gradients have to
be the oracle's, rounded once. The check tests each branch alone, on each side of each kink, and all
branches together. It leaves out a branch whose loss of such numbers is itself not of few bits, such
as an exponential.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from itertools import pairwise

import torch
from msgspec.structs import replace
from torch import Tensor

from losscli.cases import Case
from losscli.implementations.subject import Subject
from losscli.losses import ELEMENT
from losscli.runs.records import FAIL, PASS, VerifyResult
from losscli.truth.distances import misfit
from losscli.truth.problem import Problem
from losscli.truth.tolerances import Verdict
from losscli.truth.worst import Worst
from losscli.verify.checks.branches import short_operands
from losscli.verify.checks.check import Check

SHAPE = (4, 16)
"""A power of two elements, and a target of one row repeats a power of two times."""
INCOMING = (1.0, -3.0)
_SMALLEST, _LARGEST = 0.25, 2.0
"""Powers of two between which parameters are chosen."""
_SHARES = (0.25, 0.5, 0.75)
"""Of the way from a kink to the next."""
_BEYOND = (0.25, 0.5, 1.0)
"""How far beyond the outermost kinks."""
NOTHING_EXACT = "no branch of the loss has exact values: nothing was checked"
_FINEST = 2.0**-12
"""Every loss and gradient of an element is a multiple: sums of 64 below 2^6 take 24 bits."""


def exact_case(case: Case) -> Case:
    """Return the case with parameters that are powers of two, and zero where they are zero."""
    params = {name: _few_bits(value) for name, value in case.params.items()}
    return case.reshaped(SHAPE, params=params, distribution="normal", scale=1.0)


def _few_bits(value: float) -> float:
    """Return the power of two below a parameter, within bounds, with its sign."""
    if value == 0:
        return 0.0
    power = 2.0 ** math.floor(math.log2(abs(value)))
    return math.copysign(min(max(power, _SMALLEST), _LARGEST), value)


def _run(problem: Problem, subject: Subject) -> Iterator[VerifyResult]:
    """Judge the loss and all gradients on each branch, then on all; the first that is off."""
    worst = Worst()
    worst.add(Verdict(PASS), None, "")
    asked = list(exact_branches(problem))
    for name, _, own in asked:
        _judge(own, subject, f"on the branch '{name}'", worst)
    if len(asked) > 1:
        mixed = [coordinate for _, coordinates, _ in asked for coordinate in coordinates]
        together = problem.variant("all branches", partial(_placed, problem, mixed))
        _judge(together, subject, "on all branches", worst)
    result = worst.result(problem, subject.name, "exact")
    if not asked:
        result = replace(result, reason=NOTHING_EXACT)
    yield result


def exact_branches(problem: Problem) -> Iterator[tuple[str, list[float], Problem]]:
    """Yield each branch of exact values: its name, coordinates on it, and a problem of them."""
    names = problem.case.spec.branches(problem.case.params)
    for name, coordinates in zip(names, _coordinates(problem), strict=True):
        own = problem.variant(name, partial(_placed, problem, coordinates))
        if _is_exact(own):
            yield name, coordinates, own


def has_exact_values(case: Case) -> bool:
    """Tell whether the check has anything to check of the loss of a case."""
    return any(True for _ in exact_branches(Problem.of(exact_case(case))))


def _coordinates(problem: Problem) -> list[list[float]]:
    """Return, for each branch, coordinates that lie on it."""
    kinks = problem.case.spec.kinks(problem.case.params)
    if not kinks:
        return [[sign * by for by in _BEYOND for sign in (1, -1)]]
    inside = [[low + (high - low) * share for share in _SHARES] for low, high in pairwise(kinks)]
    below, above = [kinks[0] - by for by in _BEYOND], [kinks[-1] + by for by in _BEYOND]
    return [below, *inside, above]


def _placed(problem: Problem, coordinates: list[float]) -> Problem:
    """Return a problem whose elements have the coordinates in turn."""
    spec, like = problem.case.spec, problem.prediction
    others = short_operands(problem.case)
    beside = [values.expand(SHAPE) for values in others.values()]
    # In each row at other places, so that each target meets each coordinate.
    rows, columns = torch.arange(SHAPE[0])[:, None], torch.arange(SHAPE[1])
    number = (columns // len(spec.operands[1].domain.short) + rows) % len(coordinates)
    input = spec.input_at(torch.tensor(coordinates, dtype=torch.float64)[number], *beside)
    operands = {spec.names[0]: input, **others}
    return problem.like({name: each.to(like) for name, each in operands.items()})


def _is_exact(problem: Problem) -> bool:
    """Tell whether no element needs a rounding, neither its loss nor its gradients."""
    case = problem.case
    shape = problem.oracle.shape
    wide = {
        name: each.double().expand(shape).clone().requires_grad_(name in problem.wrt)
        for name, each in problem.operands.items()
    }
    with torch.enable_grad():
        loss = case.spec.reference(*wide.values(), reduction="none", **case.params)
    gradients = torch.autograd.grad(loss.sum(), [wide[name] for name in problem.wrt])
    return all(
        _has_few_bits(each, problem.prediction.dtype) for each in (loss.detach(), *gradients)
    )


def _has_few_bits(values: Tensor, dtype: torch.dtype) -> bool:
    """Tell whether a dtype holds values and three times them, and their sums have few digits."""
    held = (values * 3).to(dtype).double() == values * 3
    held &= values.to(dtype).double() == values
    return bool((held & ((values / _FINEST).frac() == 0)).all())


def _judge(problem: Problem, subject: Subject, where: str, worst: Worst) -> None:
    """Judge the loss and all gradients, bit for bit."""
    for number in INCOMING:
        incoming = problem.filled(number, problem.wrt)
        answer = subject.answer(problem.call(incoming))
        dues = {"loss": (problem.oracle.value(), problem.oracle.loss_shape(), problem.prediction)}
        for name in problem.wrt:
            operand = problem.operands[name]
            truths = problem.oracle.gradient(name, incoming.grad_output)
            dues[f"{name} gradient"] = truths, operand.shape, operand
        for part, (truths, shape, like) in dues.items():
            got = answer.items()[part]
            wrong = misfit(got, shape, like, like.dtype)
            if not wrong and got is not None:
                (truth,) = truths
                wrong = _differs(got, truth.value.to(got.dtype))
            if wrong:
                told = f"{where}, incoming gradient {number:g}, {part}: "
                worst.add(Verdict(FAIL, wrong), None, told)


def _differs(got: Tensor, due: Tensor) -> str:
    """Say where a result is not what is due; empty if it is. The sign of a zero is not judged."""
    off = (got.detach() != due).flatten()
    if not off.any():
        return ""
    place = int(off.int().argmax())
    index = [int(i) for i in torch.unravel_index(torch.tensor(place), due.shape)]
    want, found = float(due.flatten()[place]), float(got.flatten()[place])
    return (
        f"expected {want:.17g} exactly, got {found:.17g} at {index}; "
        "these additions are exact in every order"
    )


CHECK = Check(
    "exact",
    "forward_backward",
    _run,
    adapt=exact_case,
    once=True,
    units=(ELEMENT,),
)
