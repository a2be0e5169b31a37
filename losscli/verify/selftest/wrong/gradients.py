"""Losses whose value is right, and whose gradients are wrong on purpose."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from losscli.cases.case import Case
from losscli.losses import ELEMENT
from losscli.verify.selftest.formula import formula
from losscli.verify.selftest.surgery import regrade

if TYPE_CHECKING:
    from losscli.implementations.implementation import BoundLoss


def clears_gradients(case: Case, input: Tensor, *others: Tensor) -> Tensor:
    """Clears the gradient that has been accumulated so far."""

    def clearing(incoming: Tensor) -> Tensor:
        if input.is_leaf:
            input.grad = None
        return incoming

    return regrade(formula(case, input, *others), clearing)


def last_incoming(case: Case) -> BoundLoss:
    """Keeps the gradient for the incoming gradient of the call before."""
    last: list[Tensor] = []

    def reuse(incoming: Tensor) -> Tensor:
        used = last.pop() if last and last[0].shape == incoming.shape else incoming
        last[:] = [incoming.clone()]
        return used.expand(incoming.shape)

    return lambda *operands: regrade(formula(case, *operands), reuse)


def habit(case: Case) -> BoundLoss:
    """Takes an incoming gradient that came three times for what comes the fourth time."""
    seen: list[float] = []

    def expect(incoming: Tensor) -> Tensor:
        flat = incoming.flatten()
        number = float(flat[0]) if len(flat) else 0.0
        if seen[-3:] == [number] * 3 or len(set(seen[-3:])) != 1 or len(seen) < 3:
            used = incoming
        else:
            used = torch.full_like(incoming, seen[-1])
        seen.append(number)
        return used

    return lambda *operands: regrade(formula(case, *operands), expect)


def transposed_gradient(case: Case, input: Tensor, *others: Tensor) -> Tensor:
    """Writes the gradient in the order in which the input is stored, and calls it dense."""

    def misplace(incoming: Tensor) -> Tensor:
        return incoming.t().reshape(incoming.shape)

    stored_across = input.dim() == 2 and input.stride(0) < input.stride(1)
    return formula(case, regrade(input, misplace) if stored_across else input, *others)


def reused_sizes(case: Case, input: Tensor, *others: Tensor) -> Tensor:
    """Looks in backward at where the operand lies then."""

    def look(incoming: Tensor) -> Tensor:
        strides = torch.empty(input.shape).stride()
        moved = input.stride() != strides and input.dim() == 2
        return incoming.t().reshape(incoming.shape) if moved else incoming

    straight = input.dim() != 2 or input.is_contiguous()
    return formula(case, regrade(input, look) if straight else input, *others)


def first_row_decides(case: Case) -> BoundLoss:
    """Leaves backward out where the first row of the incoming gradient is zero."""
    dimensions = 1 if case.spec.unit == ELEMENT else 0  # an element is no row

    def skip(incoming: Tensor) -> Tensor:
        some = incoming.dim() > dimensions and len(incoming) > 0 and not incoming[0].any()
        return torch.zeros_like(incoming) if some else incoming

    return lambda *operands: regrade(formula(case, *operands), skip)


def one_number(incoming: Tensor) -> Tensor:
    """Takes an incoming gradient with a stride of 0 for one number."""
    repeats = incoming.dim() > 0 and incoming.numel() > 0 and 0 in incoming.stride()
    return incoming.flatten()[0].expand(incoming.shape) if repeats else incoming
