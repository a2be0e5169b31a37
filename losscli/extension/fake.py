"""Fake implementations of the operators for torch.compile, export and meta tensors.

Each function serves losses with any number of operands: ``count`` of them.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def loss(count: int, *arguments: Any, **_: Any) -> Tensor:
    """Return an empty loss: ``NAME(operands..., reduction, ...)``."""
    elements = _elements(arguments[:count])
    return elements if arguments[count] == "none" else elements.new_empty(())


def with_grad(count: int, *arguments: Any, **_: Any) -> tuple[Tensor, Tensor]:
    """Return an empty loss and gradient: ``NAME_with_grad(operands..., reduction, ...)``."""
    operands = arguments[:count]
    return loss(count, *arguments), _gradient(operands[0], _elements(operands))


def backward(count: int, *arguments: Any) -> tuple[Tensor, ...]:
    """Return empty gradients: ``NAME_backward(grad_output, operands..., ..., wanted)``."""
    operands, wanted = arguments[1 : 1 + count], arguments[-1]
    elements = _elements(operands)
    return tuple(
        _gradient(operand, elements) if wants else operand.new_empty((0,))
        for operand, wants in zip(operands, wanted, strict=True)
    )


def double_backward(count: int, *arguments: Any) -> tuple[Tensor, ...]:
    """Return what ``NAME_double_backward(grad_grads..., grad_output, operands..., ...)`` does."""
    return tuple(tensor.new_empty(tensor.shape) for tensor in arguments[count : 2 * count + 1])


def _elements(operands: Sequence[Tensor]) -> Tensor:
    """Return a tensor of the broadcast shape, the promoted dtype and PyTorch's layout."""
    elements: Tensor = functools.reduce(operator.add, operands)
    return elements


def _gradient(operand: Tensor, elements: Tensor) -> Tensor:
    """Return a gradient of an operand: dense, its dimensions in the order of the losses'."""
    strides = elements.stride()[elements.dim() - operand.dim() :]
    return torch.empty_like(operand.new_empty_strided(operand.shape, strides))
