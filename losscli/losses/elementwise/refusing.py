"""Calls of losses that raise for invalid operand values, as PyTorch's do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from losscli.machine.pytorch import Tensor, torch

from .. import operators
from ..calling import Arguments, Calls


class RefusingCalls(Calls):
    """Calls of a loss that is NaN for operands that PyTorch rejects.

    Operands are checked on the CPU, and only if the loss has a NaN. On a GPU a check would wait and
    read the operand again, so the loss stays NaN. Compilers and transforms are not checked either.
    """

    def __init__(self, name: str, refuse: Callable[..., None], **settings: Any) -> None:
        """Describe the calls.

        Args:
            name: the loss's name.
            refuse: raises PyTorch's error for invalid operands.
            settings: further arguments of Calls.
        """
        super().__init__(name, **settings)
        self.refuse = refuse

    def loss(self, given: Arguments, *site: int) -> Tensor:
        """Return the loss."""
        loss = super().loss(given, *site)
        self._look(loss, given)
        return loss

    def loss_with_grad(
        self, given: Arguments, grad_output: Tensor | float
    ) -> tuple[Tensor, Tensor]:
        """Return the loss and its gradient."""
        loss, gradient = super().loss_with_grad(given, grad_output)
        self._look(loss, given)
        return loss, gradient

    def _look(self, loss: Tensor, given: Arguments) -> None:
        if operators.is_compiling() or type(loss) is not torch.Tensor or loss.device.type != "cpu":
            return
        if torch._C._functorch.is_functorch_wrapped_tensor(loss):
            return
        # The sum is NaN if an element is, and needs no memory.
        if bool(loss.detach().sum().isnan()):
            self.refuse(*given.operands)
