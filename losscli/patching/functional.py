"""The losses of torch.nn.functional, and so of torch.nn."""

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from losscli import functional

MODULE = "torch.nn.functional"
OLDEST, NEWEST = (2, 10), (2, 13)


def table() -> dict[str, tuple[str, Any]]:
    """Return old name -> new name, and what makes the replacement."""
    return {
        f"{MODULE}.{name}": (
            f"losscli.functional.{name}",
            partial(falling_through, getattr(functional, name)),
        )
        for name in functional.__all__
        if hasattr(torch.nn.functional, name)
    }


def falling_through(own: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``own``, which hands on to the original what losscli does not take."""

    @wraps(original)
    def replacement(*given: Any, **named: Any) -> Any:
        if not any(map(_overrides, (*given, *named.values()))):
            try:
                return own(*given, **named)
            except (TypeError, ValueError, NotImplementedError):
                pass  # losscli does not take these, and users know the original's error
        return original(*given, **named)

    replacement.__prepare_scriptable__ = lambda: original  # type: ignore[attr-defined]
    return replacement


def _overrides(given: Any) -> bool:
    kind = type(given)
    if kind is Tensor or kind is Parameter or not isinstance(given, Tensor):
        return False
    own = kind.__torch_function__
    return own is not Parameter.__torch_function__ and own != Tensor.__torch_function__
