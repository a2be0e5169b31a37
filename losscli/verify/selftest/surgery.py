"""The parts of a reference, and autograd functions that plant one mistake into a loss."""

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


def _on_own_leaves(
    function: Callable[..., Tensor], operands: tuple[Tensor, ...]
) -> tuple[tuple[Tensor, ...], Tensor]:
    with torch.enable_grad():
        leaves = tuple(operand.detach() for operand in operands)
        for leaf in leaves:
            leaf.requires_grad_(leaf.is_floating_point())
        return leaves, function(*leaves)


def _gradients(
    loss: Tensor, leaves: tuple[Tensor, ...], incoming: Tensor | None = None, *, keep: bool = False
) -> list[Tensor | None]:
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    found = iter(torch.autograd.grad(loss, wanted, incoming, retain_graph=keep))
    return [next(found) if leaf.requires_grad else None for leaf in leaves]


class Linear(torch.autograd.Function):
    """A function whose gradients have zero derivatives, as those of a linear one."""

    @staticmethod
    def forward(ctx: Any, function: Callable[..., Tensor], *operands: Tensor) -> Tensor:
        """Apply the function to separate leaves."""
        leaves, loss = _on_own_leaves(function, operands)
        ctx.leaves, ctx.loss = leaves, loss
        return loss.detach()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        """Return the right gradients, connected only to grad_output."""
        incoming = grad_outputs[0]
        found = _gradients(ctx.loss, ctx.leaves, incoming.detach(), keep=True)
        nothing = 0 * incoming.sum()
        return None, *(None if gradient is None else gradient + nothing for gradient in found)


class StoredGradients(torch.autograd.Function):
    """A reduced function that computes gradients in forward; backward scales them in place."""

    @staticmethod
    def forward(ctx: Any, function: Callable[..., Tensor], *operands: Tensor) -> Tensor:
        """Apply the function to separate leaves."""
        leaves, loss = _on_own_leaves(function, operands)
        ctx.gradients, ctx.function = _gradients(loss, leaves), function
        ctx.save_for_backward(*operands)
        return loss.detach()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        """Scale the gradients; recompute them if they will be differentiated."""
        if torch.is_grad_enabled():
            operands = ctx.saved_tensors
            loss = ctx.function(*operands)
            again = torch.autograd.grad(loss, operands, grad_outputs[0], create_graph=True)
            return None, *again
        incoming = grad_outputs[0]
        scaled = (None if found is None else found.mul_(incoming) for found in ctx.gradients)
        return None, *scaled


def graft(value: Tensor, differentiable: Tensor) -> Tensor:
    """Return a tensor with the value of one and the gradient of another."""
    result: Tensor = _Grafted.apply(value.detach(), differentiable)  # type: ignore[no-untyped-call]
    return result


def regrade(tensor: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    """Return a copy of a tensor whose grad_output goes through a function."""
    result = tensor.clone()
    if result.requires_grad:
        result.register_hook(function)
    return result


Make = Callable[[Case], BoundLoss]


def stand_in(
    name: str,
    bind: Make,
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


def reduced(case: Case, elements: Tensor, count: Tensor | None = None) -> Tensor:
    """Reduce elements as in the case; a mean is over ``count`` or all elements."""
    if case.reduction == "none":
        return elements
    total = elements.sum()
    divisor = elements.numel() if count is None else count
    return total / divisor if case.reduction == "mean" else total
