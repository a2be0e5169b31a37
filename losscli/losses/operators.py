"""Calls the losses' operators for their functions and modules.

``losscli.operators.registration`` defines the operators and stores them here, as ``NAME`` and
``NAME_with_grad``, beside ``incoming`` and ``is_compiling``, when ``losscli.functional`` or
``losscli.nn`` is imported; ``losscli.linear`` stores the functions of hidden states,
``losscli.sharded.dtensors`` those of DTensors. Before that
the losses are only described, which needs no torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

DTensor: type | None = None
"""PyTorch's class, once ``losscli.sharded.dtensors`` has been imported, as it is with that."""


def are_distributed(tensors: Iterable[Any]) -> bool:
    """Tell whether some of these are DTensors."""
    return DTensor is not None and any(isinstance(tensor, DTensor) for tensor in tensors)


def __getattr__(name: str) -> Any:
    raise AttributeError(
        f"the operators of the losses are not defined yet, {name} among them: import "
        "losscli.functional or losscli.nn"
    )
