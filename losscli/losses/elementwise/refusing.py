"""Calls of losses that refuse values of their operands, as PyTorch's do."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import operators
from ..calling import Arguments, Calls

if TYPE_CHECKING:
    from torch import Tensor


class RefusingCalls(Calls):
    """The calls of a loss that is NaN for operands which PyTorch refuses.

    Operands are looked at only where the loss has a NaN, and only on the CPU: on a GPU each call
    would have to wait for it and read the operand once more, so there the loss stays NaN. Tensors
    that stand for others, in a compiler or a transform, are not looked at, either.
    """

    def __init__(self, name: str, refuse: Callable[..., None], **settings: Any) -> None:
        """Describe them.

        Args:
            name: of the loss.
            refuse: given the operands, raises PyTorch's error for those that it refuses.
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
        import torch

        if operators.is_compiling() or type(loss) is not torch.Tensor or loss.device.type != "cpu":
            return
        if torch._C._functorch.is_functorch_wrapped_tensor(loss):
            return
        # NaN where one of the elements is; it takes no memory.
        if bool(loss.detach().sum().isnan()):
            self.refuse(*given.operands)
