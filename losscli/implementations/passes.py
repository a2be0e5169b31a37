"""The passes that bench times: forward, or forward and backward."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import cycle

import torch
from torch import Tensor

from losscli.cases.axes import FORWARD_BACKWARD, PassName, grad_output_values
from losscli.cases.case import Case
from losscli.implementations.implementation import BoundLoss
from losscli.machine.allocator import measure_peak
from losscli.processes.garbage import without_garbage_collection

Incoming = tuple[float, Tensor]
"""A grad_output: the number, and the tensor filled with it."""
CALLS_BEFORE_CAPTURE = 3
"""Calls before a capture, as PyTorch's documentation requires."""
_broken: list[torch.cuda.CUDAGraph] = []
"""Graphs whose capture failed; PyTorch's allocator may still query them."""


class _Eager:
    def __init__(
        self,
        function: BoundLoss,
        operands: Sequence[Tensor],
        leaves: Sequence[Tensor],
        grad_outputs: Sequence[Incoming],
    ) -> None:
        self.function, self.operands, self.input = function, operands, operands[0]
        self.leaves, self.grad_outputs = leaves, cycle(grad_outputs)
        """The operands that a training step differentiates, and what successive calls take."""
        self.loss: Tensor | None = None
        self.incoming = 1.0
        """The last call's grad_output."""

    def compute(self) -> None:
        """Compute and keep the results."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Prepare the next call outside the timed region."""

    def peak_extra_bytes(self, device: str) -> int | None:
        """Return a call's peak temporary memory, without inputs, loss and gradients."""
        self.release()
        peak = measure_peak(self.compute, device)
        kept = [self.loss, *self.gradients]
        self.release()
        return max(peak - sum(t.nbytes for t in kept if t is not None), 0)

    @property
    def gradients(self) -> tuple[Tensor | None, ...]:
        """The kept gradients of the last call."""
        return tuple(leaf.grad for leaf in self.leaves)

    def release(self) -> None:
        """Free the last results."""
        self.loss = None
        self._drop()

    def _drop(self) -> None:
        for leaf in self.leaves:
            leaf.grad = None


class Forward(_Eager):
    """A forward pass; call it under ``gradients("forward")``."""

    def compute(self) -> None:
        self.loss = None  # so that only one is alive
        self.loss = self.function(*self.operands)

    __call__ = compute


class ForwardBackward(_Eager):
    """Forward and backward: the loss and the gradients of ``leaves``.

    All implementations of a case share the leaves, so only one set of gradients is alive. Each call
    frees its own at the end, as ``optimizer.zero_grad()`` does: on a CPU, up to a tenth of a call.
    Successive calls cycle through ``grad_outputs``, so that no kernel is launched to make one.
    """

    def compute(self) -> None:
        self(keep=True)

    def __call__(self, *, keep: bool = False) -> None:
        self.release()
        self.incoming, grad_output = next(self.grad_outputs)
        loss = self.function(*self.operands)
        loss.backward(grad_output)
        self.loss = loss
        if not keep:
            self._drop()


Eager = Forward | ForwardBackward


@contextmanager
def capture_graph(graph: torch.cuda.CUDAGraph, stream: torch.cuda.Stream) -> Iterator[None]:
    """Capture calls in a graph; a graph whose capture fails is kept forever."""
    try:
        with without_garbage_collection(), torch.cuda.graph(graph, stream=stream):
            yield
    except Exception:
        _broken.append(graph)
        raise


class Captured(_Eager):
    """A pass captured in a CUDA graph, which has its own output memory; each call replays it."""

    def __init__(self, timed: Eager, read: Tensor | None, grad_outputs: Sequence[Incoming]) -> None:
        """Capture a pass with its own leaves; changing grad_outputs are copied to ``read``."""
        super().__init__(timed.function, timed.operands, timed.leaves, grad_outputs)
        self.read = read
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
        self.incoming = timed.incoming
        timed.release()

    def prepare(self) -> None:
        """Copy the next grad_output to the graph's input."""
        if self.read is not None:
            self.incoming, grad_output = next(self.grad_outputs)
            self.read.copy_(grad_output)

    def peak_extra_bytes(self, device: str) -> int | None:
        return None  # the graph has allocated its memory already

    def __call__(self) -> None:
        self.graph.replay()

    def compute(self) -> None:
        """Replay, and expose the gradients as an eager pass does."""
        self.prepare()
        self.graph.replay()
        for leaf, gradient in zip(self.leaves, self.written, strict=True):
            leaf.grad = gradient

    def release(self) -> None:
        self._drop()  # the graph keeps their memory


Pass = Eager | Captured


def gradients(pass_: PassName) -> AbstractContextManager[object]:
    """Return the grad mode of a pass, to enter around its calls."""
    return torch.set_grad_enabled(pass_ == FORWARD_BACKWARD)


class PassFactory:
    """Makes the passes of all implementations of a case, with shared operands in spec order."""

    def __init__(self, case: Case, pass_: PassName, operands: Iterable[Tensor]) -> None:
        first, *others = operands
        self.pass_ = pass_
        self.grad_outputs: list[Incoming] = []
        self.trained: list[int] = []
        if pass_ == FORWARD_BACKWARD:
            shape = case.unreduced_shape if case.reduction == "none" else ()
            like = torch.empty(0, dtype=getattr(torch, case.loss_dtype), device=first.device)
            values = grad_output_values(case.grad_output)
            self.grad_outputs = [(value, like.new_full(shape, value)) for value in values]
            self.trained = sorted(case.spec.names.index(name) for name in case.spec.trained)
        self.operands = self._with_leaves((first, *others))

    @property
    def full_grad_output(self) -> Tensor | None:
        """The grad_output; None if it is a scalar."""
        return next((tensor for _, tensor in self.grad_outputs if tensor.dim()), None)

    def capture(self, function: BoundLoss) -> Captured:
        """Return one implementation's pass, captured in a graph."""
        read, given = None, self.grad_outputs[:1]
        if len(self.grad_outputs) > 1:
            value, first = given[0]
            read = first.clone()
            given = [(value, read)]
        timed = self._pass(function, self._with_leaves(self.operands), given)
        return Captured(timed, read, self.grad_outputs)

    def make(self, function: BoundLoss) -> Eager:
        """Return one implementation's pass."""
        return self._pass(function, self.operands, self.grad_outputs)

    def _pass(
        self, function: BoundLoss, operands: Sequence[Tensor], grad_outputs: Sequence[Incoming]
    ) -> Eager:
        kind = ForwardBackward if self.pass_ == FORWARD_BACKWARD else Forward
        return kind(function, operands, [operands[place] for place in self.trained], grad_outputs)

    def _with_leaves(self, operands: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return tuple(
            each.detach().requires_grad_() if place in self.trained else each
            for place, each in enumerate(operands)
        )
