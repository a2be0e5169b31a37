"""PyTorch, imported at the first use of a name; stands for imports inside functions."""

from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch as torch
    from torch import Tensor as Tensor
else:
    Tensor = Any
    torch = ModuleType("torch")

    def _imported(name: str) -> Any:
        import torch as whole

        found = getattr(whole, name)
        setattr(torch, name, found)  # found at once from now on
        return found

    torch.__getattr__ = _imported
