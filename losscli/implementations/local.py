"""The subject whose implementation is called in this process."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial, reduce
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from losscli.cases.case import Case
from losscli.errors import LosscliError, first_line
from losscli.implementations import inspection
from losscli.implementations.call_data import (
    INCOMING_GRADIENT,
    Answer,
    Call,
    Curvature,
    Head,
    Operands,
    Replay,
)
from losscli.implementations.errors import NoSecondDerivativesError, SubjectError
from losscli.implementations.implementation import Implementation
from losscli.implementations.passes import Pass, PassFactory, capture_graph
from losscli.implementations.process_state import ProcessState, StateChange
from losscli.implementations.wholes import of_whole
from losscli.machine.allocations import measure_peak
from losscli.machine.memory import is_out_of_memory
from losscli.processes.garbage import without_garbage_collection
from losscli.reasons import Code

if TYPE_CHECKING:
    from losscli.implementations.implementation import BoundLoss

_HELD_UP_CYCLES = 20_000_000
"""Cycles of 10 ms: work queued meanwhile starts together, and work on a stray stream starts too
early."""
_WARM_UPS = 2
"""Calls before a capture, in which an implementation does the setup that a capture forbids."""


@dataclass(frozen=True)
class _Graph:
    """A call captured in a CUDA graph; ``answer`` is what each replay writes to."""

    graph: torch.cuda.CUDAGraph
    call: Call
    answer: Answer


@dataclass(frozen=True)
class LocalSubject:
    """See :class:`~losscli.implementations.subject.Subject`."""

    implementation: Implementation
    case: Case
    function: BoundLoss
    """Takes whole operands."""
    timed: BoundLoss
    """Takes the operands that bench has: whole ones, or the shards of this rank."""
    _others: dict[Case, LocalSubject] = field(default_factory=dict, init=False, compare=False)
    """The implementation bound to the cases of other heads."""
    _graphs: list[_Graph] = field(default_factory=list, init=False, compare=False)

    @classmethod
    def bind(cls, implementation: Implementation, case: Case) -> LocalSubject:
        """Fix reduction and parameters."""
        with _blaming():
            timed = implementation.bind(case)
        whole = of_whole(case, implementation.bind) if case.placement else timed
        return cls(implementation, case, whole, timed)

    @property
    def name(self) -> str:
        """See :class:`Subject`."""
        return self.implementation.name

    @property
    def device(self) -> str:
        """See :class:`Subject`."""
        return self.case.device

    def again(self) -> LocalSubject:
        """See :class:`Subject`."""
        return LocalSubject.bind(self.implementation, self.case)

    def loss(self, operands: Operands, wrt: tuple[str, ...] = ()) -> Tensor:
        """See :class:`Subject`."""
        loss, _ = self._forward(Call(operands, wrt), differentiable=False)
        self._finish()
        return loss.detach()

    def answer(self, call: Call) -> Answer:
        """See :class:`Subject`."""
        answer = self._answer(call)
        self._finish()
        return answer

    def repeated(self, passes: PassFactory) -> Pass:
        """Return a pass to be called repeatedly; its exceptions are not wrapped."""
        return passes.make(self.timed)

    def captured(self, passes: PassFactory) -> Pass:
        """Return a pass captured in a CUDA graph, to be replayed repeatedly."""
        with _blaming():
            return passes.capture(self.timed)

    def retained(self, call: Call, incoming: Sequence[Tensor]) -> Iterator[Answer]:
        """See :class:`Subject`."""
        loss, operands = self._forward(call)
        for grad_output in incoming:
            answer = _backward(loss, operands, call, grad_output, retain=True)
            self._finish()
            yield answer

    def accumulated(
        self, call: Call, before: Mapping[str, Tensor], times: int
    ) -> dict[str, Tensor | None]:
        """See :class:`Subject`."""
        leaves = {name: operand.detach() for name, operand in call.operands.items()}
        for name in call.wrt:
            leaves[name].requires_grad_()
            leaves[name].grad = before[name].clone()
        for _ in range(times):
            with _blaming():
                loss = self.function(*leaves.values())
                _check_gradient(loss, call)
                loss.backward(call.grad_output)
        self._finish()
        return {name: leaves[name].grad for name in call.wrt}

    def second_derivatives(self, asked: Curvature) -> dict[str, Tensor | None]:
        """See :class:`Subject`."""
        wrt = tuple(asked.toward)
        loss, operands = self._forward(Call(asked.operands, wrt))
        leaves = [operands[name] for name in wrt]
        g = asked.grad_output.detach().clone().requires_grad_()
        try:
            with _blaming():
                gradients = torch.autograd.grad(loss, leaves, g, create_graph=True)
                products = [
                    (gradient * toward).sum()
                    for gradient, toward in zip(gradients, asked.toward.values(), strict=True)
                ]
                total = reduce(torch.add, products)
                found = torch.autograd.grad(total, (*leaves, g), allow_unused=True)
                self._finish()
        except SubjectError as error:
            raise NoSecondDerivativesError(str(error)) from error
        return dict(zip((*wrt, INCOMING_GRADIENT), found, strict=True))

    def shared_memory(self, call: Call) -> tuple[str, str] | None:
        """See :class:`Subject`."""
        return inspection.shared_memory(self.answer(call), self.answer(call), call)

    def poisoned(self, call: Call, pattern: int) -> Answer:
        """See :class:`Subject`."""
        inspection.poison(self.answer(call), pattern, call)
        return self.answer(call)

    def growth(self, call: Call) -> int:
        """See :class:`Subject`."""
        return inspection.growth(self.answer, call, self.device)

    def extra_bytes(self, call: Call) -> int:
        """See :class:`Subject`."""
        answer = self.answer(call)  # what is kept from the first call on is not a call's own
        results = sum(result.nbytes for result in answer.items().values() if result is not None)
        del answer
        return measure_peak(partial(self.answer, call), self.device) - results

    def joint_gradients(self, heads: Sequence[Head]) -> list[dict[str, Tensor | None]]:
        """See :class:`Subject`."""
        leaves: list[dict[str, Tensor]] = []
        terms: list[Tensor] = []
        for head in heads:
            loss, operands = self._bound_to(head.case)._forward(head.call)
            leaves.append(operands)
            terms.append(head.weight * (loss.sum() if loss.dim() else loss))
        wanted = [
            leaf[name] for head, leaf in zip(heads, leaves, strict=True) for name in head.call.wrt
        ]
        with _blaming():
            # In one dtype, so that the incoming gradient of each is its weight.
            total = torch.stack(terms).sum()
            found = iter(torch.autograd.grad(total, wanted, allow_unused=True))
        self._finish()
        return [{name: next(found) for name in head.call.wrt} for head in heads]

    def _bound_to(self, case: Case | None) -> LocalSubject:
        """Return the subject of a case of the same implementation, bound once."""
        if case is None or case == self.case:
            return self
        if case not in self._others:
            self._others[case] = LocalSubject.bind(self.implementation, case)
        return self._others[case]

    def watch(self, step: Callable[[], object]) -> list[StateChange]:
        """See :class:`Subject`."""
        before = ProcessState.read()
        try:
            step()
        finally:
            changed = before.restore()
        return changed

    def in_thread(self, calls: Sequence[Call]) -> list[Answer]:
        """See :class:`Subject`."""

        def answer_all() -> list[Answer]:
            # The first GPU is the current one of a new thread.
            with nullcontext() if self.device == "cpu" else torch.cuda.device(self.device):
                return [self._answer(call) for call in calls]

        with ThreadPoolExecutor(1) as thread:
            answers = thread.submit(answer_all).result()
        self._finish()
        return answers

    def on_streams(self, queues: Sequence[Sequence[Call | Replay]]) -> list[list[Answer]]:
        """See :class:`Subject`."""
        answers: list[list[Answer]] = [[] for _ in queues]
        with torch.cuda.device(self.device):
            origin = torch.cuda.current_stream()
            streams = [torch.cuda.Stream() for _ in queues]
            for stream in streams:
                stream.wait_stream(origin)
                with torch.cuda.stream(stream):
                    torch.cuda._sleep(_HELD_UP_CYCLES)
            for requests in zip_longest(*queues):
                for stream, request, done in zip(streams, requests, answers, strict=True):
                    with torch.cuda.stream(stream):
                        if isinstance(request, Replay):
                            done.append(self._replay(request))
                        elif request is not None:
                            done.append(self._answer(request))
            for stream in streams:
                origin.wait_stream(stream)
            self._finish()
        return answers

    def changed(self, call: Call, name: str, data: Tensor) -> Answer:
        """See :class:`Subject`."""
        loss, operands = self._forward(call)
        operands[name].data = data
        answer = _backward(loss, operands, call, call.grad_output)
        self._finish()
        return answer

    def backward_replays(self, call: Call, incoming: Sequence[Tensor]) -> Iterator[Answer]:
        """See :class:`Subject`."""
        with torch.cuda.device(self.device):
            self.on_streams([[call] * _WARM_UPS])
            graph, stream, read = torch.cuda.CUDAGraph(), torch.cuda.Stream(), incoming[0].clone()
            stream.wait_stream(torch.cuda.current_stream())
            try:
                with torch.cuda.stream(stream):  # autograd runs a node where its forward ran
                    loss, operands = self._forward(call)
                torch.cuda.synchronize()
                try:
                    with _blaming(), capture_graph(graph, stream):
                        answer = _backward(loss, operands, call, read, retain=True)
                except SubjectError as error:
                    raise SubjectError(f"in a capture of backward: {error}") from error
                for grad_output in incoming:
                    with _blaming():
                        read.copy_(grad_output)
                        graph.replay()
                    self._finish()
                    yield answer.copy()
            finally:
                torch.cuda.synchronize()

    def graphed(self, call: Call, incoming: Sequence[Tensor]) -> Iterator[Answer]:
        """See :class:`Subject`."""
        sample = tuple(
            operand.detach().clone().requires_grad_(name in call.wrt)
            for name, operand in call.operands.items()
        )
        function: Any
        with torch.cuda.device(self.device):
            with _blaming(), without_garbage_collection(), warnings.catch_warnings():
                # PyTorch warms up on a stream that it does not capture on, and keeps what came of
                # it, the operands' AccumulateGrad nodes as well, until it has captured.
                warnings.filterwarnings("ignore", "The AccumulateGrad node's stream", UserWarning)
                function = torch.cuda.make_graphed_callables(self.function, sample)
            for grad_output in incoming:
                # The graph keeps the nodes of the sample, which belong to another stream: operands
                # in the same memory have nodes of their own.
                own = {
                    name: leaf.detach().requires_grad_(name in call.wrt)
                    for name, leaf in zip(call.operands, sample, strict=True)
                }
                with _blaming():
                    loss = function(*own.values())
                answer = _backward(loss, own, call, grad_output)
                self._finish()
                yield answer.copy()

    def record(self, calls: Sequence[Call]) -> list[int]:
        """See :class:`Subject`."""
        first = len(self._graphs)
        with torch.cuda.device(self.device):
            for call in calls:
                self._graphs.append(self._record(call))
        return list(range(first, len(self._graphs)))

    def forget(self) -> None:
        """See :class:`Subject`."""
        with torch.cuda.device(self.device):
            torch.cuda.synchronize()
            for recorded in self._graphs:
                recorded.graph.reset()
            self._graphs.clear()
            torch.cuda.empty_cache()

    def replay(self, replay: Replay) -> Answer:
        """See :class:`Subject`."""
        answer = self._replay(replay)
        self._finish()
        return answer

    def _finish(self) -> None:
        """Wait for a GPU, so that an error of a kernel is blamed on its launcher."""
        if self.device != "cpu":
            with _blaming():
                torch.cuda.synchronize(self.device)

    def _record(self, call: Call) -> _Graph:
        """Capture a call after a few calls on a side stream, as PyTorch's notes ask for."""
        self.on_streams([[call] * _WARM_UPS])
        graph = torch.cuda.CUDAGraph()
        try:
            with _blaming(), capture_graph(graph, torch.cuda.Stream()):
                answer = self._answer(call)
        except SubjectError as error:
            # The end of a broken capture raises as well, and says less than what broke it.
            first = error.__cause__.__context__ if error.__cause__ else None
            cause = first if isinstance(first, SubjectError) else error
            raise SubjectError(f"in a graph capture: {cause}") from error
        return _Graph(graph, call, answer)

    def _replay(self, replay: Replay) -> Answer:
        recorded = self._graphs[replay.number]
        with _blaming():
            if replay.contents:
                recorded.call.fill(replay.contents)
            recorded.graph.replay()
            return recorded.answer.copy()

    def _answer(self, call: Call) -> Answer:
        """Answer without waiting for a GPU."""
        call.fill()
        loss, operands = self._forward(call)
        if not call.wrt:
            return Answer(loss.detach(), {})
        return _backward(loss, operands, call, call.grad_output)

    def _forward(
        self, call: Call, *, differentiable: bool = True
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Run the function on leaves of which those in ``wrt`` ask for a gradient.

        ``differentiable``: whether the loss has to have one.
        """
        operands = {name: operand.detach() for name, operand in call.operands.items()}
        for name in call.wrt:
            operands[name].requires_grad_()
        with _blaming(), torch.set_grad_enabled(bool(call.wrt)):
            loss = plain(self.function(*operands.values()))
            if call.wrt and differentiable:
                _check_gradient(loss, call)
        return loss, operands


def _backward(
    loss: Tensor, operands: Operands, call: Call, incoming: Tensor | None, *, retain: bool = False
) -> Answer:
    """Return a loss and its gradients without waiting for a GPU; ``retain`` keeps the graph."""
    with _blaming():
        wrt = [operands[name] for name in call.wrt]
        found = [
            gradient if gradient is None else plain(gradient)
            for gradient in torch.autograd.grad(
                loss, wrt, incoming, retain_graph=retain, allow_unused=True
            )
        ]
    return Answer(loss.detach(), dict(zip(call.wrt, found, strict=True)))


def plain(result: object) -> Tensor:
    """Return a result that is a tensor, without a class or a method of its own, which may answer.

    Raises:
        SubjectError: it is something else.
    """
    if type(result) is Tensor:
        for name in vars(result):
            if hasattr(Tensor, name):
                text = f"returned a tensor with an attribute {name} of its own"
                raise SubjectError(text, Code.WRONG)
        return result
    raise SubjectError(f"returned a {type(result).__name__}, not a torch.Tensor", Code.WRONG)


def _check_gradient(loss: Tensor, call: Call) -> None:
    """Raise SubjectError for a loss that cannot be differentiated."""
    if not loss.requires_grad:
        text = f"returned a loss that has no gradient for {' or '.join(call.wrt)}"
        raise SubjectError(text, Code.NO_GRADIENT)


@contextmanager
def _blaming() -> Iterator[None]:
    """Turn an exception of an implementation into SubjectError.

    A failed build and a lack of memory are not its fault and are raised unchanged.
    """
    try:
        yield
    except (LosscliError, SubjectError):
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise
        wrapped = SubjectError(f"raised {type(error).__name__}: {first_line(error)}".rstrip(": "))
        wrapped.refused = isinstance(error, RuntimeError)
        raise wrapped from error
