"""Operands of fused linear losses as rows, and checks of any loss's operands."""

from typing import NamedTuple

import torch
from torch import Tensor

from losscli.losses.formulas import promoted, widened
from losscli.losses.kinds import not_floating
from losscli.losses.rows.spec import number_of_one_row
from losscli.losses.shapes import remedy


class Operands(NamedTuple):
    """Hidden states as rows, and the linear layer."""

    hidden: Tensor
    weight: Tensor
    bias: Tensor | None
    class_numbers: Tensor
    shape: torch.Size
    """The hidden states' shape without the width."""
    dtype: torch.dtype


def operands_of(
    name: str, hidden: Tensor, weight: Tensor, numbers: Tensor, bias: Tensor | None, said: str
) -> Operands:
    """Return the operands as rows, in autocast's dtype."""
    first = "hidden" if said == "tokens" else "input"
    check_floating(name, first, hidden)
    if weight.dim() != 2 or hidden.dim() == 0 or hidden.shape[-1] != weight.shape[1]:
        is_turned = weight.dim() == 2 and hidden.shape[-1:] == weight.shape[:1]
        raise ValueError(
            f"{name}: linear_weight must be (C, D) for {first} (..., D), but {first} is "
            f"{list(hidden.shape)} and linear_weight {list(weight.shape)}"
            f"{'; write linear_weight.t()' if is_turned else ''}"
        )
    check_shape(name, "linear_bias", bias, weight.shape[:1], "a number for each class")
    check_numbers(name, said, numbers, "; for probabilities call cross_entropy of the logits")
    if hidden.dim() == 1:
        numbers = number_of_one_row(numbers)
    of = f"the shape of {first} without its last dimension"
    check_shape(name, said, numbers, hidden.shape[:-1], of)
    shape, dtype = hidden.shape[:-1], loss_dtype(hidden)
    if is_autocast(hidden) and hidden.dtype != torch.float64:
        to = torch.get_autocast_dtype(hidden.device.type)
        hidden, weight = hidden.to(to), weight.to(to)
        bias = None if bias is None else bias.to(to)
    for other, called in ((weight, "linear_weight"), (bias, "linear_bias")):
        if other is not None and other.dtype != hidden.dtype:
            raise TypeError(
                f"{name}: {called} must have the dtype of {first} {hidden.dtype}, but is "
                f"{other.dtype}"
            )
    rows = hidden.reshape(numbers.numel(), hidden.shape[-1])
    # uint8 indices would be compared modulo 256.
    return Operands(rows, weight, bias, numbers.reshape(-1).long(), shape, dtype)


def is_autocast(tensor: Tensor) -> bool:
    """Tell whether autocast is on."""
    device = tensor.device.type
    # PyTorch 2.11 cannot compile a check for whether a device has autocast.
    return device in ("cpu", "cuda") and torch.is_autocast_enabled(device)


def loss_dtype(*tensors: Tensor) -> torch.dtype:
    """Return a loss's dtype: promoted, and under autocast at least float32."""
    dtype = promoted(*tensors)
    return widened(dtype) if is_autocast(tensors[0]) else dtype


def check_floating(name: str, said: str, tensor: Tensor) -> None:
    """Raise TypeError unless an operand is floating-point."""
    if not tensor.is_floating_point():
        raise TypeError(f"{name}: {said} {not_floating(tensor.dtype)}")


def check_numbers(name: str, said: str, numbers: Tensor, advice: str = "") -> None:
    """Raise TypeError for class indices of another dtype; ``advice`` ends the message."""
    if numbers.dtype not in (torch.int64, torch.int32, torch.uint8):
        raise TypeError(
            f"{name}: {said} must hold class indices in int64, int32 or uint8, but is "
            f"{numbers.dtype}{advice}"
        )


def check_shape(
    name: str, said: str, tensor: Tensor | None, shape: torch.Size, of: str, way: str = ""
) -> None:
    """Raise ValueError for another shape; ``of`` and ``way`` complete the message."""
    if tensor is not None and tensor.shape != shape:
        raise ValueError(
            f"{name}: {said} must have {of} {list(shape)}, but is {list(tensor.shape)}"
            f"{way or remedy(said, tensor.shape, shape)}"
        )


def check_mask(name: str, mask: Tensor | None, shape: torch.Size, of: str) -> None:
    """Raise ValueError for a mask of another shape or dtype."""
    if mask is not None and (mask.dtype != torch.bool or mask.shape != shape):
        raise ValueError(
            f"{name}: mask must be bool and have the shape of {of} {list(shape)}, but is "
            f"{mask.dtype} of {list(mask.shape)}{remedy('mask', mask.shape, shape)}"
        )


def check_classes(name: str, numbers: Tensor, classes: int, counted: Tensor | bool = True) -> None:
    """Raise IndexError for a counted class index out of range; a row may have several."""
    wrong = ((numbers < 0) | (numbers >= classes)) & counted
    if wrong.any():
        place = tuple(wrong.nonzero()[0].tolist())
        raise IndexError(
            f"{name}: row {place[0]} has class {int(numbers[place])}, but there are classes 0 to "
            f"{classes - 1}"
        )


def is_eager(*tensors: Tensor | None) -> bool:
    """Tell whether tensors have memory, and nothing traces or transforms them."""
    if torch.compiler.is_compiling() or torch._C._functorch.peek_interpreter_stack() is not None:
        return False
    plain = (Tensor, torch.nn.Parameter)
    return all(x is None or (type(x) in plain and not x.is_meta) for x in tensors)
