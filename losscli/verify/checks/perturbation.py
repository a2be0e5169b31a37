"""The elements that the check ``coverage`` changes, and their new values."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from losscli.cases.case import Case
from losscli.truth.problem import Problem
from losscli.truth.tolerances import VALUE_ULP, elements, magnitudes, sum_bound

TILE = 1024
MOST_TILES = 512
"""Larger tensors have evenly spaced tiles probed."""


def probed_elements(shape: Sequence[int], item_bytes: int) -> list[int]:
    """Return flat positions: one per tile, both ends, the tail, row ends, around 2^31 and 2^32."""
    count = prod(shape)
    tiles = -(-count // TILE)
    chosen = min(tiles, MOST_TILES)
    found = {0, *range(max(count - 17, 0), count)}  # more than a vector has
    probed = [number * tiles // chosen for number in range(chosen)]
    # 397 is a prime, so that every lane is probed in some tile.
    found |= {tile * TILE + tile * 397 % TILE for tile in probed}
    if len(shape) > 1:
        rows = count // max(shape[-1], 1)
        some = min(rows, 16)
        found |= {(number * rows // some + 1) * shape[-1] - 1 for number in range(some)}
    edges = [limit // size for limit in (2**31, 2**32) for size in (1, item_bytes)]
    found |= {edge + by for edge in edges for by in (-1, 0, 1)}
    return sorted(number for number in found if number < count)


_POWERS = range(12, -7, -1)
"""Exponents of the changes that are tried."""
_TRIED = tuple(sign * 2.0**power for power in reversed(_POWERS) for sign in (1, -1))
MOST = 4096
"""The most elements changed at once."""
_MARGIN = 2.0
"""How much more one element adds than is tolerated of its group."""


@dataclass(frozen=True)
class Perturbation:
    """New values that elements take in turn."""

    before: float
    values: Tensor
    adds: tuple[tuple[float, float], ...]
    """What each adds to the loss, and to the scale of its error."""
    base: tuple[float, float]
    """The unchanged loss, and the scale of its error."""
    group: int
    """The most changes at once among which a missed one shows; 0 if none does even alone."""
    tolerance: float
    """Relative, of the loss."""

    def take(self, start: int, stop: int) -> Tensor:
        """Return the values of a range of elements."""
        return self.values[torch.arange(start, stop, device=self.values.device) % len(self.values)]

    def expect(self, start: int, stop: int) -> tuple[float, float]:
        """Return the loss with a range of elements changed, and the scale of its error."""
        added = (self.adds[number % len(self.adds)] for number in range(start, stop))
        loss, scale = map(math.fsum, zip(self.base, *added, strict=True))
        return loss, scale


def at_least_loss(problem: Problem, name: str = "") -> Problem:
    """Return the problem with every element at its :func:`least_loss_values`."""
    values, form = least_loss_values(problem.case, name), torch.contiguous_format
    own = problem.operands
    return problem.like({n: torch.full_like(own[n], values[n], memory_format=form) for n in own})


def least_loss_values(case: Case, name: str = "") -> dict[str, float]:
    """Return the value of each operand, a power of two, at which the loss is least.

    ``name``: an operand whose changes must show, which needs a nonzero loss if it multiplies it.
    """
    first = case.spec.names[0]
    values = {operand.name: operand.domain.at_least_loss for operand in case.spec.operands}
    values[first] = _least(case, values, first)
    if name and not _shows(case, values, name):
        domain = case.spec.domains[first]
        moved = sorted(filter(domain.holds, _TRIED), key=lambda x: abs(math.log2(abs(x))))
        shown = (x for x in moved if _shows(case, {**values, first: x}, name))
        values[first] = next(shown, values[first])
        values[name] = _least(case, values, name)
    return values


def _losses(case: Case, values: dict[str, float], name: str, *also: float) -> dict[float, float]:
    """Return the loss for each value of an operand that is tried."""
    held = [value for value in (*also, *_TRIED) if case.spec.domains[name].holds(value)]
    tried = torch.tensor(held, dtype=torch.float64)
    filled = {each: torch.full_like(tried, value) for each, value in values.items()}
    return dict(zip(held, elements(case, {**filled, name: tried}).tolist(), strict=True))


def _least(case: Case, values: dict[str, float], name: str) -> float:
    losses = _losses(case, values, name, 0.0)
    return min(losses, key=lambda value: abs(losses[value]))


def _shows(case: Case, values: dict[str, float], name: str) -> bool:
    return len({*_losses(case, values, name).values()}) > 1


def find_change(problem: Problem, name: str) -> Perturbation:
    """Find the change that most elements can have at once."""
    case, oracle = problem.case, problem.oracle
    count, limits = oracle.shape.numel(), torch.finfo(oracle.dtype)
    operand = problem.operands[name]
    divisor = float(count) if case.reduction == "mean" else 1.0
    tolerance = max(sum_bound(oracle.dtype), max(VALUE_ULP, problem.granted or 0.0) * limits.eps)

    one = {n: each.flatten()[0].double().cpu() for n, each in problem.operands.items()}
    before = one[name]
    base = elements(case, one)
    total = float(base) * count / divisor
    scale = magnitudes(case, one, base)
    amounts = torch.tensor([[s * 2.0**p] for p in _POWERS for s in (1, -1)], dtype=torch.float64)
    # Exact in every dtype, and different, so that an element read for the next one shows.
    steps = 1 + torch.arange(8, dtype=torch.float64) / 16
    values = (before + amounts * steps).to(operand.dtype)
    held = case.spec.domains[name].inside(values.double())
    changed = {**one, name: held}
    losses = elements(case, changed)
    single = losses - base
    share = count / operand.numel() / divisor
    adds, scales = single * share, (magnitudes(case, changed, losses) - scale) * share
    total_scale = float(scale) * count / divisor

    least, most = adds.abs().amin(1), adds.abs().amax(1)
    growth = scales.abs().amax(1).clamp(min=torch.finfo(torch.float64).tiny)
    resolved = (least / (_MARGIN * tolerance) - abs(total_scale)) / growth
    in_range = (limits.max / 4 - abs(total)) / most
    # Below the normal numbers the spacing no longer shrinks with the value; and a formula that
    # rounds each element has to hold it.
    fits = least > _MARGIN * VALUE_ULP * limits.tiny * limits.eps
    fits &= single.abs().amax(1) < limits.max / 4
    inside = (held == values).all(1)
    fits &= inside & ((adds > 0).all(1) | (adds < 0).all(1))
    groups = torch.where(fits, torch.minimum(resolved, in_range), 0.0).clamp(0, MOST).long()
    best = int((2 * groups + inside).argmax())
    return Perturbation(
        before=float(before),
        values=values[best].to(operand.device),
        adds=tuple(zip(adds[best].tolist(), scales[best].tolist(), strict=True)),
        base=(total, total_scale),
        group=int(groups[best]),
        tolerance=tolerance,
    )
