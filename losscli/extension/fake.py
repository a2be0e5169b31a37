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


def _loss(
    input: Tensor, target: Tensor, reduction: str, *parameters_and_strategy: float | str
) -> Tensor:
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
    return (
        _gradient(input, elements) if wants_input else input.new_empty((0,)),
        _gradient(target, elements) if wants_target else target.new_empty((0,)),
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
    return (
        grad_output.new_empty(grad_output.shape),
        input.new_empty(input.shape),
        target.new_empty(target.shape),
    )


def _gradient(operand: Tensor, elements: Tensor) -> Tensor:
    """Return a gradient of an operand: dense, its dimensions in the order of the losses'."""
    strides = elements.stride()[elements.dim() - operand.dim() :]
    return torch.empty_like(operand.new_empty_strided(operand.shape, strides))
