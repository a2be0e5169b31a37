"""Operands whose loss is zero, and changes of single elements that make it nonzero."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from losscli.cases import Case
from losscli.implementations.call_data import Operands
from losscli.truth.problem import Problem
from losscli.truth.tolerances import VALUE_ULP, sum_bound

_POWERS = range(12, -7, -1)
"""Of two: how far an element is moved; the largest whose sum the dtype holds."""
_STEPS = 8
"""Neighbours are moved by 16/16, 17/16, ... 23/16 of it: few bits, so exact in every dtype, and an
element that is read for the next shows."""
MOST = 4096
"""Changed at once; more would all but never be asked for."""
_MARGIN = 2.0
"""What one element adds, over what is tolerated of all of its group."""


@dataclass(frozen=True)
class Loud:
    """What elements are changed to, in turn, and what each then adds to the loss."""

    quiet: float
    """What they were."""
    values: Tensor
    adds: tuple[float, ...]
    base: float
    """The loss when none is changed."""
    group: int
    """So many at once that one which is missed shows; 0 where not even one alone does."""
    tolerance: float
    """Relative, of the loss."""

    def take(self, start: int, stop: int) -> Tensor:
        """Return the values of a range of elements."""
        numbers = torch.arange(start, stop, device=self.values.device)
        return self.values[numbers % len(self.values)]

    def value(self, number: int) -> float:
        """Return what an element is changed to."""
        return float(self.values[number % len(self.values)])

    def expect(self, start: int, stop: int) -> float:
        """Return the loss with a range of elements changed."""
        own = (self.adds[number % len(self.adds)] for number in range(start, stop))
        return math.fsum((self.base, *own))


def elements(case: Case, operands: Operands) -> Tensor:
    """Return the truth of each element."""
    return case.spec.reference(*operands.values(), reduction="none", **case.params)


def quiet(problem: Problem, name: str = "") -> Problem:
    """Return the problem with every element where its loss is least, of powers of two.

    ``name``: an operand whose changes have to show. What multiplies the loss shows only where there
    is a loss: there the prediction is elsewhere, and the operand where it makes the loss least.
    """
    case = problem.case
    first, *others = case.spec.names
    values = dict.fromkeys(case.spec.names, 1.0)
    if not case.spec.sign_targets:
        values[others[0]] = 0.0
    powers = [sign * 2.0**power for power in reversed(_POWERS) for sign in (1, -1)]
    candidates = torch.tensor([0.0, *powers], dtype=torch.float64)
    values[first] = _least(case, values, first, candidates)
    if name and not _shows(case, values, name, candidates):
        places = sorted(powers, key=lambda power: abs(math.log2(abs(power))))
        shown = (x for x in places if _shows(case, {**values, first: x}, name, candidates))
        values[first] = next(shown, values[first])
        values[name] = _least(case, values, name, candidates)
    return problem.like(
        {
            name: torch.full_like(each, values[name], memory_format=torch.contiguous_format)
            for name, each in problem.operands.items()
        }
    )


def _at(case: Case, values: dict[str, float], name: str, candidates: Tensor) -> list[float]:
    """Return the losses of an element where one operand has each candidate."""
    filled = {each: torch.full_like(candidates, value) for each, value in values.items()}
    losses: list[float] = elements(case, {**filled, name: candidates}).tolist()
    return losses


def _least(case: Case, values: dict[str, float], name: str, candidates: Tensor) -> float:
    """Return the candidate for an operand with the smallest loss, the first of equals."""
    losses = _at(case, values, name, candidates)
    return float(candidates[losses.index(min(losses, key=abs))])


def _shows(case: Case, values: dict[str, float], name: str, candidates: Tensor) -> bool:
    """Tell whether a change of an operand changes the loss."""
    return len({*_at(case, values, name, candidates)}) > 1


def find_loud(problem: Problem, name: str) -> Loud:
    """Find the change of elements of a quiet problem that lets most of them be changed at once."""
    case, oracle = problem.case, problem.oracle
    count, limits = oracle.shape.numel(), torch.finfo(oracle.dtype)
    operand = problem.operands[name]
    divisor = float(count) if case.reduction == "mean" else 1.0
    tolerance = max(sum_bound(oracle.dtype), max(VALUE_ULP, problem.granted or 0.0) * limits.eps)

    one = {n: each.flatten()[0].double().cpu() for n, each in problem.operands.items()}
    still = one[name]
    base = elements(case, one)
    total = float(base) * count / divisor
    amounts = torch.tensor([[s * 2.0**p] for p in _POWERS for s in (1, -1)], dtype=torch.float64)
    steps = 1 + torch.arange(_STEPS, dtype=torch.float64) / 16
    values = (still + amounts * steps).to(operand.dtype)
    single = elements(case, {**one, name: values.double()}) - base
    adds = single * (count / operand.numel() / divisor)

    least, most = adds.amin(1), adds.amax(1)
    resolved = (least / (_MARGIN * tolerance) - abs(total)) / most
    room = (limits.max / 4 - abs(total)) / most
    # Below the normal numbers the spacing no longer shrinks with the value; and a formula that
    # rounds each element has to hold it.
    fits = least > _MARGIN * VALUE_ULP * limits.tiny * limits.eps
    fits &= single.amax(1) < limits.max / 4
    groups = torch.where(fits, torch.minimum(resolved, room), 0.0).clamp(0, MOST).long()
    best = int(groups.argmax())
    return Loud(
        float(still),
        values[best].to(operand.device),
        tuple(adds[best].tolist()),
        total,
        int(groups[best]),
        tolerance,
    )
