"""Checks the gradients against differences of the loss itself, in float64.

Catches: a gradient that is not that of the loss, whatever the oracle holds to be the truth. The
oracle takes its gradients from autograd through the reference, so a reference whose derivative is
wrong would let the same mistake pass. This check needs neither: along random directions of -1 and 1
the loss a step ahead, less the loss a step behind, over two steps, has to be the product of the
gradient and the direction.

A difference at step ``h`` is off by its truncation, which shrinks with ``h`` squared, and by the
rounding of the losses over ``h``. Richardson's extrapolation from ``h`` and ``h / 2`` is left with
less than the two differ by; a loss of piecewise second degree, as those here, has no truncation at
all. The rounding is bounded by that of sums, of the sum of magnitudes. Inputs near a kink, where
there is no derivative to be met, or near an end of their domain are moved away from it first. Only
where the config asks for float64: no other dtype has the digits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from msgspec.structs import replace
from torch import Tensor

from losscli.cases import Case
from losscli.implementations.call_data import Operands
from losscli.implementations.subject import Subject
from losscli.losses import LOSS, RowSpec
from losscli.runs.records import FAIL, PASS, VerifyResult
from losscli.truth.problem import Problem
from losscli.truth.streams import make_generator
from losscli.truth.terms import largest_terms
from losscli.truth.tolerances import ELEMENT_ULP, Verdict, sum_bound
from losscli.truth.worst import Worst
from losscli.verify.checks.check import Check
from losscli.verify.checks.second_derivatives import curvature_case

STEP = 2.0**-12
"""Where the rounding over it is still below 1e-9 of the products."""
MARGIN = 2.0**-6
"""From a kink: more than two steps of all operands move what decides the branch."""


def numeric_case(case: Case) -> Case:
    """Return the case with a small shape, and values of the size of 1."""
    return replace(curvature_case(case), scale=1.0)


def _run(problem: Problem, subject: Subject) -> Iterator[VerifyResult]:
    """Judge the product of the gradients with each direction."""
    worst = Worst()
    worst.add(Verdict(PASS), None, "")
    own = problem.variant("away from kinks", lambda: _away_from_kinks(problem))
    weights = own.usual.grad_output
    gradients = subject.answer(own.call(own.usual)).gradients
    generator = make_generator(problem.case.seed, "direction")
    for title, moved in _directions(problem):
        along = {
            name: (torch.randint(2, each.shape, generator=generator) * 2.0 - 1.0).to(each)
            for name, each in own.operands.items()
            if name in moved
        }
        got = 0.0
        for name, direction in along.items():
            gradient = gradients[name]
            if gradient is not None:
                got += float((gradient.double() * direction).sum())
        worst.add(_judge(own, subject, weights, along, got), None, f"along {title}: ")
    yield worst.result(problem, subject.name, CHECK.name)


def _directions(problem: Problem) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the operands that move together, by a title: each alone, then all."""
    for name in problem.wrt:
        yield f"the {name}", (name,)
    yield "both" if len(problem.wrt) == 2 else "all operands", problem.wrt


def _judge(
    problem: Problem, subject: Subject, weights: Tensor, along: Operands, got: float
) -> Verdict:
    """Compare a product with what the loss does along a direction."""

    def weighted(step: float) -> tuple[float, float]:
        """Return the loss so far along, and the sum of the magnitudes of its terms."""
        moved = {name: problem.operands[name] + step * along[name] for name in along}
        operands = {**problem.operands, **moved}
        losses = subject.loss(operands)
        largest = largest_terms(problem.case, LOSS, operands, losses)
        scale = losses if largest is None else largest
        return float((losses * weights).sum()), float((scale * weights).abs().sum())

    def slope(step: float) -> tuple[float, float]:
        (ahead, one), (behind, other) = weighted(step), weighted(-step)
        return (ahead - behind) / (2 * step), max(one, other)

    (wide, magnitude), (narrow, _) = slope(STEP), slope(STEP / 2)
    expected = (4 * narrow - wide) / 3
    rounding = (ELEMENT_ULP * torch.finfo(torch.float64).eps + sum_bound(torch.float64)) * magnitude
    # Of both slopes, as the extrapolation weighs them: (4 * 2 + 1) / 3 times that of the wider.
    allowed = 3 * rounding / STEP + abs(narrow - wide)
    # Written so that NaN is wrong.
    if abs(expected - got) <= allowed:
        return Verdict(PASS)
    reason = f"the loss changes by {expected:.9g} per step, but its gradient says {got:.9g}"
    return Verdict(FAIL, f"{reason}; rounding explains at most {allowed:.2g}")


def _away_from_kinks(problem: Problem) -> Problem:
    """Return the problem with its inputs where no step meets a kink or leaves a domain."""
    spec, kinks = problem.case.spec, problem.case.spec.kinks(problem.case.params)
    values = problem.operands
    if kinks:
        values = {**values, spec.names[0]: _moved(problem, kinks)}
    elif isinstance(spec, RowSpec) and spec.from_kinks:
        values = {**values, spec.names[0]: _moved_in_rows(problem, spec.from_kinks)}
    return problem.like(
        {
            each.name: each.smoothed(values[each.name], 2 * STEP)
            if each.differentiable
            else values[each.name]
            for each in spec.operands
        }
    )


def _moved(problem: Problem, kinks: Sequence[float]) -> Tensor:
    """Return the prediction where no step meets a kink."""
    spec, shape = problem.case.spec, problem.oracle.shape
    x, *others = (operand.expand(shape) for operand in problem.operands.values())
    _, slope = spec.branch_line(*others)
    for kink in kinks:
        distance = spec.branch_coordinate(x, *others) - kink
        moved = x + torch.copysign(torch.full_like(x, 2 * MARGIN), distance) / slope
        x = torch.where(distance.abs() < MARGIN, moved, x)
    return x.contiguous()


def _moved_in_rows(problem: Problem, from_kinks: Callable[..., tuple[Tensor, ...]]) -> Tensor:
    """Return rows where no step meets a kink."""
    x, *others = problem.operands.values()
    for number in range(len(from_kinks(x, *others, **problem.case.params))):
        distance = from_kinks(x, *others, **problem.case.params)[number]
        moved = x + torch.copysign(torch.full_like(x, 2 * MARGIN), distance)
        x = torch.where(distance.abs() < MARGIN, moved, x)
    return x


CHECK = Check(
    "numeric",
    "forward_backward",
    _run,
    adapt=numeric_case,
    once=True,
    asks=lambda case: case.dtype == "float64",
    needs="float64",
)
