"""How many operators a step of a loss over ranks takes: on a GPU each is a launch.

Beside a shard's read and write a launch of a few microseconds counts, so that each one more has to
be worth it. Names are those of a CPU, whose host looks at class indices first, which is left out.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from unittest import mock

import torch
from torch import Tensor, distributed
from torch.utils._python_dispatch import TorchDispatchMode

from losscli import sharded

_FREE = {"_local_scalar_dense", "detach", "expand", "permute", "promote_types", "select", "slice"}
_FREE |= {"empty", "new_empty", "split", "unbind", "unsqueeze", "view"}


class _Operators(TorchDispatchMode):
    """The names of the operators that compute, in their order; of a collective its library's."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, arguments: Any = (), named: Any = None
    ) -> Any:
        space, name = function.name().split("::")
        name = name.partition(".")[0]
        if name not in _FREE:
            self.names.append("collective" if space == "c10d" else name)
        return function(*arguments, **(named or {}))


def _taken(call: Callable[..., Tensor], *operands: Tensor) -> tuple[list[str], list[str]]:
    """Return the operators of a forward and a backward pass."""
    call(*operands)  # asks the other ranks for their classes, and loads libraries
    with mock.patch("losscli.linear.operands.check_classes"), _Operators() as forward:
        loss = call(*operands)
    incoming = torch.ones_like(loss)
    with _Operators() as backward:
        torch.autograd.grad(loss, operands, incoming)
    return forward.names, backward.names


def a_step_takes_few_operators() -> None:
    x = torch.randn(6, 8, requires_grad=True)
    target = torch.tensor([0, 7, 8, -100, 15, 3])
    number = ["clamp", "sub"] if distributed.get_rank() > 0 else ["clamp"]
    # The last one tells ranks that were called otherwise.
    exchange = ["full", "cat", "collective", "bitwise_xor"]
    of_rows = [*number, "token_log_probs", *exchange, "join_parts"]
    for z_loss in (0.0, 0.1):
        forward, backward = _taken(partial(sharded.cross_entropy, target=target, z_loss=z_loss), x)
        assert forward == ["ne", *of_rows, "sum", "div", "_to_copy"], forward
        assert backward == ["part_gradient"], backward
    tokens = target.clamp(min=0)
    forward, backward = _taken(partial(sharded.token_log_probs, tokens=tokens), x)
    assert forward == [*of_rows, "neg"], forward
    assert backward == ["neg", "part_gradient"], backward
    pair = torch.randn(2, 6, 8).requires_grad_()
    forward, backward = _taken(partial(sharded.kl_divergence, reduction="none"), *pair)
    assert forward == ["kl_divergence_of_part", *exchange, "join_divergences"], forward
    assert backward == ["divergence_gradients"], backward


OPERATOR_CHECKS: Sequence[Callable[[], None]] = (a_step_takes_few_operators,)
