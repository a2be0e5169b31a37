"""What is timed: a forward pass, or a forward and backward pass, of one implementation."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from losscli.implementations import BoundLoss


class Forward:
    """The loss, to be called under ``gradients(..., "forward")``."""

    def __init__(self, function: BoundLoss, input: Tensor, target: Tensor) -> None:
        self.function, self.input, self.target = function, input, target
        self.loss: Tensor | None = None

    def compute(self) -> None:
        """Compute the loss. The last one is dropped first, so that two never live at once."""
        self.loss = None
        self.loss = self.function(self.input, self.target)

    __call__ = compute

    def release(self) -> None:
        """Free what the last call made."""
        self.loss = None


class ForwardBackward:
    """The loss and the gradient of the prediction, as a training step asks for them.

    ``input`` is a leaf that requires grad; it is shared by all implementations of a case, so that
    one gradient lives at a time. A call allocates its gradient anew and frees it at the end, as
    ``optimizer.zero_grad()`` does: giving memory back has its price, on a CPU up to a tenth of the
    call, and nobody is to pay it for another. Without a reduction the incoming gradient is
    ``grad_output``.
    """

    def __init__(
        self, function: BoundLoss, input: Tensor, target: Tensor, grad_output: Tensor | None
    ) -> None:
        self.function, self.input, self.target = function, input, target
        self.grad_output = grad_output
        self.loss: Tensor | None = None

    def __call__(self) -> None:
        """Compute the loss and the gradient, and free the gradient."""
        self.compute()
        self.input.grad = None

    def compute(self) -> None:
        """Compute the loss and the gradient."""
        self.loss = self.input.grad = None
        loss = self.function(self.input, self.target)
        loss.backward(self.grad_output)
        self.loss = loss

    def release(self) -> None:
        """Free what the last call made."""
        self.loss = self.input.grad = None


Pass = Forward | ForwardBackward


def gradients(pass_: str) -> AbstractContextManager[object]:
    """Return the grad mode of a pass; entered around the calls, so that it is not timed."""
    return torch.set_grad_enabled(pass_ == "forward_backward")


class PassFactory:
    """Makes the passes of all implementations of a case over the same tensors."""

    def __init__(self, pass_: str, reduction: str, input: Tensor, target: Tensor) -> None:
        self.pass_, self.input, self.target = pass_, input, target
        self.grad_output: Tensor | None = None
        if pass_ == "forward_backward":
            self.input = input.detach().requires_grad_()
            if reduction == "none":
                self.grad_output = torch.ones_like(input)

    def make(self, function: BoundLoss) -> Pass:
        """Return the pass of one implementation."""
        if self.pass_ == "forward":
            return Forward(function, self.input, self.target)
        return ForwardBackward(function, self.input, self.target, self.grad_output)
