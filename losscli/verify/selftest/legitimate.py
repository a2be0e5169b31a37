"""Correct implementations with different methods: a check that fails one is too strict."""

import random
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from losscli.cases.case import Case
from losscli.implementations import CUSTOM, IMPLEMENTATIONS, Implementation
from losscli.losses import ELEMENT, ROW
from losscli.verify.selftest.surgery import formula, graft, reduced, stand_in, unreduced
from losscli.verify.selftest.wrong import rows

_LANES = 1024
_own_order = random.Random(0)
"""Continues from call to call, and leaves the global random states alone."""


def _lanes(values: Tensor) -> Tensor:
    return torch.nn.functional.pad(values, (0, -len(values) % _LANES)).reshape(-1, _LANES)


def _kahan(values: Tensor) -> Tensor:
    """Compensated summation (Kahan, 1965) in parallel lanes."""
    total = torch.zeros(_LANES, dtype=values.dtype, device=values.device)
    lost = torch.zeros_like(total)
    for row in _lanes(values):
        term = row - lost
        grown = total + term
        lost = ((grown - total) - term).nan_to_num(0.0)  # of infinities there is nothing to keep
        total = grown
    return total.double().sum()


def _any_order(values: Tensor) -> Tensor:
    """Add blocks in random order, as atomic additions do."""
    arriving = list(_lanes(values).sum(1, dtype=torch.float64).split(16))
    _own_order.shuffle(arriving)
    total = torch.zeros((), dtype=torch.float64, device=values.device)
    for blocks in arriving:
        total += blocks.sum()
    return total


def _online(case: Case, *operands: Tensor) -> Tensor:
    """Compute log-sum-exp in one pass over parts of a row, with a running maximum."""
    input = operands[0].detach()
    dimension = rows.class_dimension(input)
    wide = input.to(torch.promote_types(input.dtype, torch.float32))
    first = wide.select(dimension, 0)
    total, largest = torch.zeros_like(first), torch.full_like(first, -torch.inf)
    for part in wide.split(64, dimension):
        above = torch.maximum(largest, part.amax(dimension))
        level = above.nan_to_num(nan=0.0, neginf=0.0, posinf=0.0)
        added = (part - level.unsqueeze(dimension)).exp().sum(dimension)
        total, largest = added + total * (largest - level).exp(), above
    found = total.log() + largest.nan_to_num(nan=0.0, neginf=0.0, posinf=0.0)
    fixed = [each.detach() for each in operands]
    by = (found - rows.log_sum(wide)).nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    return graft(rows.with_log_sum_off(case, by, *fixed).to(input.dtype), formula(case, *operands))


def _adding(name: str, add: Callable[[Tensor], Tensor]) -> Implementation:
    def loss(case: Case, *operands: Tensor) -> Tensor:
        elements = unreduced(case, *operands)
        if case.reduction == "none":
            return elements
        wide = torch.promote_types(elements.dtype, torch.float32)
        total = reduced(case, add(elements.detach().to(wide).flatten()), elements.numel())
        own = reduced(case, elements)
        return graft(total.to(own.dtype), own)

    return stand_in(f"legitimate:{name}", lambda case: partial(loss, case), units=(ELEMENT,))


LEGITIMATE: tuple[Implementation, ...] = (
    *(IMPLEMENTATIONS[name] for name in (CUSTOM, "reference", "functional", "compile")),
    _adding("Kahan", _kahan),
    _adding("float64", lambda x: x.double().sum()),
    _adding("any order", _any_order),
    _adding("two passes", lambda x: _lanes(x).sum(1).sum(dtype=torch.float64)),
    stand_in("legitimate:online", lambda case: partial(_online, case), rows.is_smoothed, (ROW,)),
)
