"""The losses as modules, with the arguments of torch.nn's.

Each module predicts grad_output as that of its last backward, so give each head of a model its own.
"""

from typing import Any

import torch

from losscli.functional import SPECS
from losscli.linear import LinearCrossEntropyLoss

_modules = {
    spec.module.__name__: type(
        spec.module.__name__,
        (spec.module, torch.nn.Module),
        {"__module__": __name__, "__doc__": spec.module.__doc__},
    )
    for spec in SPECS
}
__all__ = [*_modules, LinearCrossEntropyLoss.__name__]
globals().update(_modules)  # a __getattr__ of the module would add 0.5 us to each call


def __getattr__(name: str) -> Any:
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
