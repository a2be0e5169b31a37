"""The operators that functions and modules call; modules that import torch fill it."""

from collections.abc import Callable, Iterable
from typing import Any

OPERATORS: dict[str, Callable[..., Any]] = {}
"""By name; each is added once."""
OF_DTENSORS: dict[str, Callable[..., Any]] = {}
"""Compute ``rows`` and ``hidden_states`` losses of DTensors."""
DTensor: type | None = None
"""PyTorch's class, once ``losscli.sharded.dtensors`` is imported."""
incoming: Callable[..., tuple[Any, ...]]
"""Returns an operator's arguments for grad_output."""
is_compiling: Callable[[], bool]


def are_distributed(tensors: Iterable[Any]) -> bool:
    """Tell whether any is a DTensor."""
    return DTensor is not None and any(isinstance(tensor, DTensor) for tensor in tensors)


def __getattr__(name: str) -> Any:
    raise AttributeError(
        f"the operators of the losses are not defined yet, {name} among them: import "
        "losscli.functional or losscli.nn"
    )
