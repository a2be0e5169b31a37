"""Mean squared error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .reduction import reduce
from .spec import LossSpec, Operand, same_shape

if TYPE_CHECKING:
    from torch import Tensor


def reference(input: Tensor, target: Tensor, *, reduction: str) -> Tensor:
    """The formula as a person writes it in PyTorch."""
    return reduce((input - target) ** 2, reduction)


def functional(input: Tensor, target: Tensor, *, reduction: str) -> Tensor:
    """torch.nn.functional's own op."""
    import torch

    input, target = torch.broadcast_tensors(input, target)
    # Its backward takes one dtype; later than torch 2.11 it promotes, and on a GPU rounds both
    # operands to the dtype of the gradient that it writes.
    wide = torch.promote_types(input.dtype, target.dtype)
    input, target = input.to(wide), target.to(wide)
    return torch.nn.functional.mse_loss(input, target, reduction=reduction)


def kinks(parameters: Mapping[str, float]) -> tuple[float, ...]:
    """Smooth everywhere."""
    return ()


def branches(parameters: Mapping[str, float]) -> tuple[str, ...]:
    """The same everywhere."""
    return ("quadratic",)


def branch_coordinate(input: Tensor, target: Tensor) -> Tensor:
    """The difference."""
    return input - target


SPEC = LossSpec(
    name="mse",
    formula="(x - y)^2",
    operands=(Operand("input", "predictions"), Operand("target", "what they should be")),
    parameters=(),
    reference=reference,
    functional=functional,
    default_target_shape=same_shape,
    kinks=kinks,
    branch_coordinate=branch_coordinate,
    branches=branches,
)
