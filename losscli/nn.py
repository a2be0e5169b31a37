"""The losses as modules, as those of torch.nn, with the same arguments.

Each module has an expectation of its incoming gradient: the number that its last backward received.
Forward writes the gradients for that number, so that backward has nothing left to do. Give each
head of a model a separate module: then heads of the same shape with different weights do not change
each other's expectation. The results do not depend on the expectation.
"""

from __future__ import annotations

from typing import Any

import torch

from losscli.extension import operators as operators  # defines torch.ops.losscli
from losscli.losses import FUNCTOR_LOSSES, LOSSES, ROW_LOSSES, LossSpec, RowLossSpec

_specs: tuple[LossSpec | RowLossSpec, ...] = (*LOSSES.values(), *ROW_LOSSES.values())
_bases: tuple[type, ...] = (
    *(spec.module for spec in _specs),
    *(spec.module for spec in FUNCTOR_LOSSES.values()),
)
_modules = {
    base.__name__: type(
        base.__name__,
        (base, torch.nn.Module),
        {"__module__": __name__, "__doc__": base.__doc__},
    )
    for base in _bases
}
__all__ = list(_modules)
globals().update(_modules)


def __getattr__(name: str) -> Any:
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
