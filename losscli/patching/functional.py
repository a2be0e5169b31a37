"""The losses of torch.nn.functional, and so of torch.nn."""

from typing import Any

import torch

from losscli import functional

from .fallthrough import falling_through

MODULE = "torch.nn.functional"
OLDEST, NEWEST = (2, 10), (2, 13)


def table() -> dict[str, tuple[str, Any]]:
    """Return old name -> new name, and what makes the replacement."""
    return {
        f"{MODULE}.{name}": (
            f"losscli.functional.{name}",
            falling_through(getattr(functional, name)),
        )
        for name in functional.__all__
        if hasattr(torch.nn.functional, name)
    }
