"""Requests for CUDA streams and CUDA graphs."""

import warnings
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any, ClassVar, cast

import torch

from losscli.implementations.errors import SubjectError
from losscli.implementations.local import LocalSubject, Operands, Request, leaves_of
from losscli.implementations.passes import capture_graph
from losscli.implementations.requests import Answer, AnswerOf, Call, ForEachGradOutput, accept_each
from losscli.processes.garbage import without_garbage_collection

_HELD_UP_CYCLES = 20_000_000
"""About 10 ms, in which all work is queued; work on a stray stream starts too early."""
_WARM_UPS = 2
"""Calls before a capture, which forbids setup; on a side stream, as PyTorch requires."""


class Capture(Request[None], frozen=True):
    """Capture each call in its own CUDA graph."""

    keeps_operands: ClassVar[bool] = True
    calls: Sequence[Call]

    def perform(self, local: LocalSubject) -> None:
        local.captured.clear()
        with torch.cuda.device(local.device):
            for call in self.calls:
                local.send(OnStreams([[call] * _WARM_UPS]))
                graph = torch.cuda.CUDAGraph()
                try:
                    with local.blamed(), capture_graph(graph, torch.cuda.Stream()):
                        answer = call.perform(local)
                except SubjectError as error:
                    # Ending a broken capture raises too, with a less useful message.
                    first_error = error.__cause__.__context__ if error.__cause__ else None
                    cause = first_error if isinstance(first_error, SubjectError) else error
                    raise SubjectError(f"in a graph capture: {cause}") from error
                local.captured.append((graph, call, answer))


class Replay(AnswerOf, frozen=True):
    """Replay a captured call on the current stream; return a copy of its results."""

    number: int
    """Its place among the captured calls."""
    contents: Operands | None = None
    """Copied into the operands first; None leaves them."""

    def perform(self, local: LocalSubject) -> Answer:
        graph, call, answer = local.captured[self.number]
        with local.blamed():
            call.fill(self.contents)
            graph.replay()
            return cast(Answer, answer.copy())


class FreeGraphs(Request[None], frozen=True):
    """Free the memory of all captured graphs."""

    drops_operands: ClassVar[bool] = True

    def perform(self, local: LocalSubject) -> None:
        with torch.cuda.device(local.device):
            torch.cuda.synchronize()
            for graph, _, _ in local.captured:
                graph.reset()
            local.captured.clear()
            torch.cuda.empty_cache()


class OnStreams(Request[list[list[Answer]]], frozen=True):
    """Run each queue of calls on its own CUDA stream, interleaved call by call."""

    queues: Sequence[Sequence[Call | Replay]]

    def perform(self, local: LocalSubject) -> list[list[Answer]]:
        answers: list[list[Answer]] = [[] for _ in self.queues]
        with torch.cuda.device(local.device):
            origin = torch.cuda.current_stream()
            streams = [torch.cuda.Stream() for _ in self.queues]
            for stream in streams:
                stream.wait_stream(origin)
                with torch.cuda.stream(stream):
                    torch.cuda._sleep(_HELD_UP_CYCLES)
            for requests in zip_longest(*self.queues):
                for stream, request, done in zip(streams, requests, answers, strict=True):
                    with torch.cuda.stream(stream):
                        if request is not None:
                            done.append(request.perform(local))
            for stream in streams:
                origin.wait_stream(stream)
        return answers

    def accepts(self, response: list[list[Answer]]) -> bool:
        return len(response) == len(self.queues) and all(map(accept_each, self.queues, response))


class BackwardReplays(ForEachGradOutput, frozen=True):
    """Capture backward alone in a CUDA graph; replay it for each grad_output."""

    def perform(self, local: LocalSubject) -> Iterator[Answer]:
        call = self.call
        with torch.cuda.device(local.device):
            local.send(OnStreams([[call] * _WARM_UPS]))
            graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
            read = self.grad_outputs[0].clone()
            stream.wait_stream(torch.cuda.current_stream())
            try:
                with torch.cuda.stream(stream):  # autograd runs a node where its forward ran
                    loss, leaves = local.forward(call.operands, call.wrt)
                torch.cuda.synchronize()
                try:
                    with local.blamed(), capture_graph(graph, stream):
                        answer = call.backward(local, loss, leaves, read, retain=True)
                except SubjectError as error:
                    raise SubjectError(f"in a capture of backward: {error}") from error
                for grad_output in self.grad_outputs:
                    with local.blamed():
                        read.copy_(grad_output)
                        graph.replay()
                    local.finish()
                    yield answer.copy()
            finally:
                torch.cuda.synchronize()


class MakeGraphedCallables(ForEachGradOutput, frozen=True):
    """Use ``torch.cuda.make_graphed_callables`` for each grad_output."""

    def perform(self, local: LocalSubject) -> Iterator[Answer]:
        call = self.call
        copies = {name: operand.clone() for name, operand in call.operands.items()}
        sample = tuple(leaves_of(copies, call.wrt).values())
        function: Any
        with torch.cuda.device(local.device):
            with local.blamed(), without_garbage_collection(), warnings.catch_warnings():
                # PyTorch warms up on another stream, and keeps that one's AccumulateGrad nodes.
                warnings.filterwarnings("ignore", "The AccumulateGrad node's stream", UserWarning)
                function = torch.cuda.make_graphed_callables(local.function, sample)
            for grad_output in self.grad_outputs:
                # The sample's nodes belong to another stream; these have the same memory.
                own = leaves_of(copies, call.wrt)
                with local.blamed():
                    loss = function(*own.values())
                answer = call.backward(local, loss, own, grad_output)
                local.finish()
                yield answer.copy()
