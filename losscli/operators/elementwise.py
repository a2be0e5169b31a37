"""Schemas and fake implementations of an elementwise loss of ``count`` operands.

tests/data/golden/schemas.txt has some schemas.
"""

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from losscli.losses import LossSpec
from losscli.losses.kinds import not_floating


def schemas(spec: LossSpec) -> dict[str, str]:
    """Return the operators' schemas by full name."""
    names = [operand.name for operand in spec.operands]
    count, name = len(names), spec.name
    operands = ", ".join(f"Tensor {operand}" for operand in names)
    seconds = ", ".join(f"Tensor grad_grad_{operand}" for operand in names)
    settings = ", ".join(["str reduction", *(f"float {p.name}" for p in spec.parameters)])
    one = f"{operands}, {settings}"
    return {
        f"losscli::{name}": f"({one}, int site=0) -> Tensor",
        f"losscli::{name}_with_grad": (
            f"({one}, Tensor? grad_output=None, float factor=1.0) -> (Tensor, Tensor)"
        ),
        f"losscli::{name}_backward": (
            f"(Tensor grad_output, {one}, bool[{count}] wanted) -> {tensors(count)}"
        ),
        f"losscli::{name}_double_backward": (
            f"({seconds}, Tensor grad_output, {one}) -> {tensors(count + 1)}"
        ),
        f"losscli_bench::{name}": f"({one}, str strategy) -> Tensor",
    }


def tensors(count: int) -> str:
    """Return the type of several results."""
    return f"({', '.join(['Tensor'] * count)})" if count > 1 else "Tensor"


def _loss(count: int, *arguments: Any, **_: Any) -> Tensor:
    elements = _elements(arguments[:count])
    return elements if arguments[count] == "none" else elements.new_empty(())


def _with_grad(count: int, *arguments: Any, **_: Any) -> tuple[Tensor, Tensor]:
    operands = arguments[:count]
    return _loss(count, *arguments), _gradient(operands[0], _elements(operands))


def _backward(count: int, *arguments: Any) -> tuple[Tensor, ...]:
    operands, wanted = arguments[1 : 1 + count], arguments[-1]
    elements = _elements(operands)
    return tuple(
        _gradient(operand, elements) if wants else operand.new_empty((0,))
        for operand, wants in zip(operands, wanted, strict=True)
    )


def _double_backward(count: int, *arguments: Any) -> tuple[Tensor, ...]:
    return tuple(tensor.new_empty(tensor.shape) for tensor in arguments[count : 2 * count + 1])


def _elements(operands: Sequence[Tensor]) -> Tensor:
    elements: Tensor = functools.reduce(operator.add, operands)  # with PyTorch's layout
    if not elements.dtype.is_floating_point:
        raise TypeError(f"operands {not_floating(*(operand.dtype for operand in operands))}")
    return elements


def _gradient(operand: Tensor, elements: Tensor) -> Tensor:
    # Dense, with the dimension order of the losses.
    strides = elements.stride()[elements.dim() - operand.dim() :]
    return torch.empty_like(operand.new_empty_strided(operand.shape, strides))


FAKES: dict[str, Callable[..., Any]] = {
    "": _loss,
    "_with_grad": _with_grad,
    "_backward": _backward,
    "_double_backward": _double_backward,
}
