"""What is timed: a forward pass, or a forward and backward pass, of one implementation."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from losscli.implementations import BoundLoss


CALLS_BEFORE_CAPTURE = 3
"""As PyTorch's notes ask for."""

_broken: list[torch.cuda.CUDAGraph] = []
"""Graphs whose capture failed: PyTorch's allocator may go on asking them what they capture."""


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


class Captured:
    """A pass captured in a CUDA graph; a call replays it.

    What the graph writes has a place of its own, so that losses and gradients of all
    implementations live side by side.
    """

    def __init__(self, timed: Forward | ForwardBackward) -> None:
        """Capture a pass whose leaf is its own: a capture must not meet what others recorded."""
        self.input = timed.input
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(timed.input.device):
            stream, origin = torch.cuda.Stream(), torch.cuda.current_stream()
            stream.wait_stream(origin)
            with torch.cuda.stream(stream):
                for _ in range(CALLS_BEFORE_CAPTURE):
                    timed()
            origin.wait_stream(stream)
            timed.release()
            try:
                with torch.cuda.graph(self.graph, stream=stream):
                    timed.compute()
            except Exception:
                _broken.append(self.graph)
                raise
        assert timed.loss is not None
        self.loss, self.gradient = timed.loss.detach(), timed.input.grad
        timed.release()

    def __call__(self) -> None:
        """Replay."""
        self.graph.replay()

    def compute(self) -> None:
        """Replay, and show the gradient where a pass that is not captured has it."""
        self.graph.replay()
        self.input.grad = self.gradient

    def release(self) -> None:
        """Show the gradient no longer; the graph keeps its memory."""
        self.input.grad = None


Pass = Forward | ForwardBackward | Captured


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

    def capture(self, function: BoundLoss) -> Captured:
        """Return the pass of one implementation, captured."""
        own = PassFactory(self.pass_, "", self.input.detach(), self.target)
        own.grad_output = self.grad_output
        return Captured(own.make(function))

    def make(self, function: BoundLoss) -> Forward | ForwardBackward:
        """Return the pass of one implementation."""
        if self.pass_ == "forward":
            return Forward(function, self.input, self.target)
        return ForwardBackward(function, self.input, self.target, self.grad_output)
