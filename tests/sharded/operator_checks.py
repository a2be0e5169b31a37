"""How many operators a step of a loss over ranks takes: on a GPU each is a launch or more.

With the collective a forward pass has about ten launches and a backward pass one, whatever the
number of ranks: the reads of the shard are to be all that counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from losscli import sharded
from losscli.sharded import functions

_VIEWS = {"detach", "permute", "select", "slice", "unsqueeze", "view"}


class _Operators(TorchDispatchMode):
    """The names of the operators that run, but for views and collectives."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, arguments: Any = (), named: Any = None
    ) -> Any:
        space, name, *_ = str(function).split(".")
        computes = torch.Tag.core not in function.tags or name not in _VIEWS
        if space != "c10d" and name not in _VIEWS | {"promote_types", "unbind"} and computes:
            self.names.append(name)
        return function(*arguments, **(named or {}))


def _taken(call: Callable[[], Any]) -> tuple[Any, list[str]]:
    call()  # asks the other ranks, loads what it needs
    # The host looks at class numbers on the CPU alone.
    with mock.patch.object(functions, "check_classes"), _Operators() as operators:
        found = call()
    return found, operators.names


def a_step_takes_few_operators() -> None:
    torch.manual_seed(torch.distributed.get_rank())
    x = torch.randn(6, 8, requires_grad=True)
    target = torch.tensor([0, 7, 8, -100, 15, 3])

    def steps(call: Callable[[], Tensor]) -> tuple[list[str], list[str]]:
        loss, forward = _taken(call)
        with _Operators() as backward:
            loss.backward()
        return forward, backward.names

    number = ["clamp", "sub"] if torch.distributed.get_rank() else ["clamp"]
    sent = ["token_log_probs", "full", "cat"]
    reduced = ["join_parts", "sum", "_to_copy"]
    forward, backward = steps(lambda: sharded.cross_entropy(x, target, reduction="sum"))
    assert [name for name in forward if name not in {"ne", "ones_like"}] == [
        *number,
        *sent,
        *reduced,
    ], forward
    assert backward == ["ones_like", "part_gradient"], backward
