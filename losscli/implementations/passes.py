"""The calls that bench times: a forward pass, or a forward and backward pass."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import reduce
from itertools import cycle
from typing import TYPE_CHECKING

import torch

from losscli.cases.axes import FORWARD_BACKWARD, PassName
from losscli.cases.case import grad_output_values
from losscli.losses import Reduction, Shape
from losscli.machine.allocations import measure_peak
from losscli.processes.garbage import without_garbage_collection

if TYPE_CHECKING:
    from torch import Tensor

    from losscli.cases.axes import GradOutput
    from losscli.cases.case import Case
    from losscli.implementations.implementation import BoundLoss

    Incoming = tuple[float, Tensor]
"""An incoming gradient: the number, and the tensor whose elements it is."""

CALLS_BEFORE_CAPTURE = 3
"""Calls before a capture, as PyTorch's documentation requires."""
_broken: list[torch.cuda.CUDAGraph] = []
"""Graphs whose capture failed: PyTorch's allocator may go on asking them what they capture."""


class _Eager:
    """A pass whose operators run one by one."""

    def __init__(
        self, function: BoundLoss, operands: Sequence[Tensor], leaves: Sequence[Tensor] = ()
    ) -> None:
        self.function, self.operands, self.input = function, operands, operands[0]
        self.leaves = tuple(leaves)
        """The operands whose gradients a step of training asks for."""
        self.loss: Tensor | None = None
        self.incoming = 1.0
        """The incoming gradient of the last call."""

    def compute(self) -> None:
        """Compute what is timed, and keep it."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Do what has to be done before a call, outside its time: nothing."""

    def peak_extra_bytes(self, device: str) -> int | None:
        """Return the most bytes that a call allocates beyond inputs, loss and gradients."""
        self.release()
        peak = measure_peak(self.compute, device)
        kept = [self.loss, *self.gradients]
        kept_bytes = sum(t.numel() * t.element_size() for t in kept if t is not None)
        self.release()
        return max(peak - kept_bytes, 0)

    @property
    def gradients(self) -> tuple[Tensor | None, ...]:
        """The gradients of the last call, where they are kept."""
        return tuple(leaf.grad for leaf in self.leaves)

    def release(self) -> None:
        """Free what the last call made."""
        self.loss = None
        self._drop()

    def _drop(self) -> None:
        for leaf in self.leaves:
            leaf.grad = None


class Forward(_Eager):
    """The loss, to be called under ``gradients(..., "forward")``."""

    def compute(self) -> None:
        """Compute the loss. The last one is dropped first, so that two never live at once."""
        self.loss = None
        self.loss = self.function(*self.operands)

    __call__ = compute


class ForwardBackward(_Eager):
    """The loss and the gradients that a training step asks for: those of ``leaves``.

    These require grad, and all implementations of a case share them, so that one set of gradients
    lives at a time. A call allocates its gradients anew and frees them at the end, as
    ``optimizer.zero_grad()`` does: giving memory back has its price, on a CPU up to a tenth of the
    call, and nobody is to pay it for another. The
    incoming gradients of successive calls are ``grad_outputs``, begun again after the last:
    tensors that were made ahead, so that a call of no implementation launches a kernel to make
    one.
    """

    def __init__(
        self,
        function: BoundLoss,
        operands: Sequence[Tensor],
        leaves: Sequence[Tensor],
        grad_outputs: Sequence[Incoming],
    ) -> None:
        super().__init__(function, operands, leaves)
        self.grad_outputs = cycle(grad_outputs)

    def compute(self) -> None:
        """Compute the loss and the gradients."""
        self(keep=True)

    def __call__(self, *, keep: bool = False) -> None:
        """Compute the loss and the gradients, and free these unless they are kept."""
        self.release()
        self.incoming, grad_output = next(self.grad_outputs)
        loss = self.function(*self.operands)
        loss.backward(grad_output)
        self.loss = loss
        if not keep:
            self._drop()


@contextmanager
def capture_graph(graph: torch.cuda.CUDAGraph, stream: torch.cuda.Stream) -> Iterator[None]:
    """Capture calls in a graph, which is kept for ever if the capture fails."""
    try:
        with without_garbage_collection(), torch.cuda.graph(graph, stream=stream):
            yield
    except Exception:
        _broken.append(graph)
        raise


class Captured:
    """A pass captured in a CUDA graph; a call replays it.

    What the graph writes has a place of its own, so that losses and gradients of all
    implementations live side by side. An incoming gradient that changes is copied before a replay
    into the tensor that the graph reads, in ``prepare``, which is not timed.
    """

    def __init__(
        self,
        timed: Forward | ForwardBackward,
        read: Tensor | None,
        grad_outputs: Sequence[Incoming],
    ) -> None:
        """Capture a pass whose leaf is its own: a capture must not meet what others recorded.

        Args:
            timed: what is captured.
            read: the incoming gradient that it reads, into which others are copied; None where
                it does not change.
            grad_outputs: of successive replays.
        """
        self.input, self.read, self.grad_outputs = timed.input, read, cycle(grad_outputs)
        self.leaves = timed.leaves
        self.incoming = grad_outputs[0][0]
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(timed.input.device):
            stream, origin = torch.cuda.Stream(), torch.cuda.current_stream()
            stream.wait_stream(origin)
            with torch.cuda.stream(stream):
                for _ in range(CALLS_BEFORE_CAPTURE):
                    timed()
            origin.wait_stream(stream)
            timed.release()
            with capture_graph(self.graph, stream):
                timed.compute()
        assert timed.loss is not None
        self.loss, self.written = timed.loss.detach(), timed.gradients
        timed.release()

    def prepare(self) -> None:
        """Copy the next incoming gradient to the memory that the graph reads."""
        if self.read is not None:
            self.incoming, grad_output = next(self.grad_outputs)
            self.read.copy_(grad_output)

    def peak_extra_bytes(self, device: str) -> int | None:
        """Return nothing: a graph has allocated all its memory before."""
        return None

    def __call__(self) -> None:
        """Replay."""
        self.graph.replay()

    def compute(self) -> None:
        """Replay, and show the gradients where a pass that is not captured has them."""
        self.prepare()
        self.graph.replay()
        for leaf, gradient in zip(self.leaves, self.written, strict=True):
            leaf.grad = gradient

    @property
    def gradients(self) -> tuple[Tensor | None, ...]:
        """The gradients of the last call, where they are shown."""
        return tuple(leaf.grad for leaf in self.leaves)

    def release(self) -> None:
        """Show the gradients no longer; the graph keeps their memory."""
        for leaf in self.leaves:
            leaf.grad = None


Pass = Forward | ForwardBackward | Captured


def gradients(pass_: PassName) -> AbstractContextManager[object]:
    """Return the grad mode of a pass; entered around the calls, so that it is not timed."""
    return torch.set_grad_enabled(pass_ == FORWARD_BACKWARD)


class PassFactory:
    """Makes the passes of all implementations of a case over the same tensors."""

    def __init__(
        self,
        pass_: PassName,
        reduction: Reduction,
        operands: Iterable[Tensor],
        grad_output: GradOutput = 1.0,
        unreduced: Shape | None = None,
        dtype: torch.dtype | None = None,
        trained: Collection[int] = (0,),
    ) -> None:
        """Take the operands of a case.

        Args:
            pass_: which pass.
            reduction: of the loss.
            operands: in the spec's order, the prediction first.
            grad_output: what comes in.
            unreduced: the shape of the loss without a reduction; None is what operands broadcast
                to.
            dtype: of the loss; None is what the operands are promoted to.
            trained: the places of the operands whose gradients a step of training asks for.
        """
        first, *others = operands
        self.pass_ = pass_
        self.grad_outputs: list[Incoming] = []
        if pass_ == FORWARD_BACKWARD:
            shape = unreduced
            if shape is None:
                shape = tuple(torch.broadcast_tensors(first, *others)[0].shape)
            if dtype is None:
                given = (each.dtype for each in (first, *others) if each.is_floating_point())
                dtype = reduce(torch.promote_types, given)
            like = torch.empty(0, dtype=dtype, device=first.device)
            due = shape if reduction == "none" else ()
            self.grad_outputs = [
                (v, like.new_full(due, v)) for v in grad_output_values(grad_output)
            ]
        self.trained = sorted(trained) if pass_ == FORWARD_BACKWARD else []
        self.operands = self._with_leaves((first, *others))

    @classmethod
    def of_case(cls, case: Case, pass_: PassName, operands: Iterable[Tensor]) -> PassFactory:
        """Return the maker of the passes of a case over its operands."""
        dtype = getattr(torch, case.loss_dtype)
        shape, grad_output = case.unreduced_shape, case.grad_output
        trained = [case.spec.names.index(name) for name in case.spec.trained]
        return cls(pass_, case.reduction, operands, grad_output, shape, dtype, trained)

    @property
    def full_grad_output(self) -> Tensor | None:
        """The incoming gradient where it has a shape; None where it is one number."""
        first = next((tensor for _, tensor in self.grad_outputs), None)
        return first if first is not None and first.dim() else None

    def capture(self, function: BoundLoss) -> Captured:
        """Return the pass of one implementation, captured."""
        if self.pass_ != FORWARD_BACKWARD:
            return Captured(self.make(function), None, [(1.0, self.operands[0])])
        read, given = None, self.grad_outputs[:1]
        if len(self.grad_outputs) > 1:
            value, first = given[0]
            read = first.clone()
            given = [(value, read)]
        operands = self._with_leaves(self.operands)
        timed = ForwardBackward(function, operands, self._leaves(operands), given)
        return Captured(timed, read, self.grad_outputs)

    def make(self, function: BoundLoss) -> Forward | ForwardBackward:
        """Return the pass of one implementation."""
        if self.pass_ != FORWARD_BACKWARD:
            return Forward(function, self.operands)
        leaves = self._leaves(self.operands)
        return ForwardBackward(function, self.operands, leaves, self.grad_outputs)

    def _with_leaves(self, operands: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return operands of which those that are trained are leaves of their own."""
        return tuple(
            each.detach().requires_grad_() if place in self.trained else each
            for place, each in enumerate(operands)
        )

    def _leaves(self, operands: Sequence[Tensor]) -> list[Tensor]:
        return [operands[place] for place in self.trained]
