"""Losses over rows of one to three operands that are wrong on purpose.

The reference is kept, and what the mistake changes in a row is added to it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from losscli.cases import Case
from losscli.verify.selftest.formula import formula, reduced, unreduced
from losscli.verify.selftest.surgery import graft, regrade


def exchanged(case: Case, input: Tensor, target: Tensor, *mask: Tensor) -> Tensor:
    """Takes the input for the target."""
    return formula(case, target, input, *mask)


def without_temperature(case: Case, *operands: Tensor) -> Tensor:
    """Leaves the temperature out of the gradients."""
    temperature = case.params["temperature"]
    rows = [
        regrade(each, lambda g: g * temperature) if each.is_floating_point() else each
        for each in operands
    ]
    return formula(case, *rows)


def _with_gradient_of(case: Case, rows: Tensor, *operands: Tensor) -> Tensor:
    """Return the loss, whose gradient is that of the loss and of these rows together."""
    loss = formula(case, *operands)
    mask = operands[2] if len(operands) > 2 else torch.ones_like(rows, dtype=torch.bool)
    more = torch.where(mask, rows, 0.0)
    if case.reduction != "none":
        more = more.sum() / (mask.sum() if case.reduction == "mean" else 1)
    return graft(loss, loss + more)


def without_mean(case: Case, input: Tensor, target: Tensor, mask: Tensor) -> Tensor:
    """The gradient of the target is ``q * d`` for ``q * (d - mean of d)``, d the surprise."""
    mean = unreduced(case, input.detach(), target.detach(), mask)
    moved = mean * torch.logsumexp(target / case.params["temperature"], -1)
    return _with_gradient_of(case, moved, input, target, mask)


def without_own_mean(case: Case, input: Tensor, target: Tensor, mask: Tensor) -> Tensor:
    """The gradient of the input is p for ``p - q``, which does not sum to zero."""
    temperature = case.params["temperature"]
    moved = (torch.softmax(target.detach() / temperature, -1) * input / temperature).sum(-1)
    return _with_gradient_of(case, moved, input, target, mask)


_NEAR = 0.01


def flipped_near_ties(case: Case, input: Tensor, target: Tensor, *mask: Tensor) -> Tensor:
    """The sign of ``p - q`` is the other one where the two are within a hundredth of each other."""
    p, q = (torch.softmax(each / case.params["temperature"], -1) for each in (input, target))
    difference = (p - q).abs()
    is_near = (difference < _NEAR * p).detach()
    moved = -torch.where(is_near, difference, 0.0).sum(-1)
    return _with_gradient_of(case, moved, input, target, *mask)


def added_epsilon(case: Case, x1: Tensor, x2: Tensor) -> Tensor:
    """Adds the least norm to each norm."""
    norms = [torch.linalg.vector_norm(x, dim=-1) + case.params["eps"] for x in (x1, x2)]
    rows = 1 - (x1 * x2).sum(-1) / norms[0] / norms[1]
    return reduced(case, rows)


def other_side(case: Case, input: Tensor, target: Tensor) -> Tensor:
    """Wants the class of a row to score lower than the others."""
    return formula(case, -input, target)
