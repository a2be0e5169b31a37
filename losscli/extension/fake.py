"""What the operators return, without computing it: for torch.compile, export and meta tensors."""

from __future__ import annotations

import torch
from torch import Tensor

from losscli.losses import LOSSES


def register() -> None:
    """Register the fake implementations of every loss's operators, once they are defined."""
    for name in LOSSES:
        torch.library.register_fake(f"losscli::{name}", _loss)
        torch.library.register_fake(f"losscli::{name}_with_grad", _with_grad)
        torch.library.register_fake(f"losscli::{name}_backward", _backward)
        torch.library.register_fake(f"losscli::{name}_double_backward", _double_backward)


def _loss(input: Tensor, target: Tensor, reduction: str, *parameters: float) -> Tensor:
    elements = input - target
    return elements if reduction == "none" else elements.new_empty(())


def _with_grad(
    input: Tensor, target: Tensor, reduction: str, *parameters: float
) -> tuple[Tensor, Tensor]:
    return _loss(input, target, reduction), _gradient(input, input - target)


def _backward(
    grad_output: Tensor,
    input: Tensor,
    target: Tensor,
    reduction: str,
    *parameters_and_wanted: float | bool,
) -> tuple[Tensor, Tensor]:
    *_, wants_input, wants_target = parameters_and_wanted
    elements = input - target
    nothing = elements.new_empty((0,))
    return (
        _gradient(input, elements) if wants_input else nothing,
        _gradient(target, elements) if wants_target else nothing.clone(),
    )


def _double_backward(
    grad_grad_input: Tensor,
    grad_grad_target: Tensor,
    grad_output: Tensor,
    input: Tensor,
    target: Tensor,
    reduction: str,
    *parameters: float,
) -> tuple[Tensor, Tensor, Tensor]:
    elements = input - target
    return (
        torch.empty_like(grad_output),
        _gradient(input, elements),
        _gradient(target, elements),
    )


def _gradient(operand: Tensor, elements: Tensor) -> Tensor:
    """Return a gradient of an operand: laid out as the elements' losses where it has their shape.

    A broadcast operand, or one with gaps, gets a contiguous gradient.
    """
    whole = operand.shape == elements.shape
    if whole and torch._prims_common.is_non_overlapping_and_dense_or_false(operand):
        return torch.empty_like(elements, dtype=operand.dtype, device=operand.device)
    return torch.empty_like(operand, memory_format=torch.contiguous_format)
