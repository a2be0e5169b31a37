"""The parts of a reference, and functions that plant one mistake into a loss."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from losscli.cases.case import Case
from losscli.implementations.implementation import BoundLoss, Implementation
from losscli.losses import ELEMENT, HIDDEN_STATE, ROW, Operand, Unit
from losscli.reasons import Code, Reason


class _Grafted(torch.autograd.Function):
    """The value of one tensor, the gradient of another."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, differentiable: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[None, Tensor]:
        return None, grad_outputs[0]


def graft(value: Tensor, differentiable: Tensor) -> Tensor:
    """Return a tensor with the value of one and the gradient of another."""
    result: Tensor = _Grafted.apply(value.detach(), differentiable)  # type: ignore[no-untyped-call]
    return result


def regrade(tensor: Tensor, function: Callable[[Tensor], Tensor | None]) -> Tensor:
    """Return a copy of a tensor whose grad_output goes through a function; None keeps it."""
    result = tensor.clone()
    if result.requires_grad:
        result.register_hook(function)
    return result


def stand_in(
    name: str,
    bind: Callable[[Case], BoundLoss],
    applies: Callable[[Case], bool] = lambda case: True,
    units: tuple[Unit, ...] = (ELEMENT, ROW, HIDDEN_STATE),
    **claims: Any,
) -> Implementation:
    """Return an implementation for the losses of ``units`` where it ``applies``."""

    def unavailable(case: Case) -> Reason | None:
        if case.spec.unit in units and applies(case):
            return None
        return Reason(Code.NOT_APPLICABLE, f"{name} does not apply here")

    return Implementation(name, "", bind, unavailable, **claims)


def formula(case: Case, *operands: Tensor, **changes: object) -> Tensor:
    """Return the reference loss, with changed settings."""
    operands = tuple(map(_survivable, case.spec.operands, operands))
    settings = {"reduction": case.reduction, **case.spec.resolve(case.params), **changes}
    return case.spec.reference(*operands, **settings)


def _survivable(operand: Operand, values: Tensor) -> Tensor:
    """Return an operand in its domain, outside of which PyTorch may break the GPU."""
    if not (operand.refused and values.is_cuda):
        return values
    return operand.domain.inside(values.nan_to_num())


def unreduced(case: Case, *operands: Tensor, **changes: object) -> Tensor:
    """Return the loss of each element, unreduced."""
    return formula(case, *operands, reduction="none", **changes)


def reduced_where(case: Case, rows: Tensor, mask: Tensor | None = None) -> Tensor:
    """Reduce the rows that a mask keeps."""
    kept = torch.ones_like(rows, dtype=torch.bool) if mask is None else mask
    return reduced(case, torch.where(kept, rows, 0.0), kept.sum())


def reduced(case: Case, elements: Tensor, count: Tensor | int | None = None) -> Tensor:
    """Reduce elements as in the case; a mean is over ``count`` or all elements."""
    if case.reduction == "none":
        return elements
    total = elements.sum()
    divisor = elements.numel() if count is None else count
    return total / divisor if case.reduction == "mean" else total


def without_curvature(case: Case, *operands: Tensor) -> Tensor:
    """Compute right gradients with zero derivatives, as those of a linear function."""
    incoming: list[Tensor] = []

    def connected_to_incoming(gradient: Tensor) -> Tensor:
        return gradient.detach() + 0 * incoming[-1].sum()

    own = (regrade(each, connected_to_incoming) for each in operands)
    return regrade(formula(case, *own), incoming.append)


def scaled_in_place(case: Case, *operands: Tensor) -> Tensor:
    """Compute gradients in forward, and scale them in place in backward."""
    incoming: list[Tensor] = []
    with torch.enable_grad():
        leaves = [each.detach().requires_grad_(each.requires_grad) for each in operands]
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        stored = iter(torch.autograd.grad(formula(case, *leaves), wanted) if wanted else ())

    def scaling(found: Tensor) -> Callable[[Tensor], Tensor]:
        # Where grad_output is differentiated too, the gradients are right.
        return lambda right: right if incoming[-1].requires_grad else found.mul_(incoming[-1])

    own = (
        regrade(each, scaling(next(stored))) if each.requires_grad else each for each in operands
    )
    return regrade(formula(case, *own), incoming.append)
