"""What verify and bench ask of an implementation, in this process or, for a file, in a worker.

A subject is made of plain data (an implementation and a case), and takes and returns tensors, so it
can live in another process than its caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol, cast

from torch import Tensor

from losscli.cases.case import Case
from losscli.implementations.builtin import find_implementation
from losscli.implementations.call_data import Answer, Call, Curvature, Head, Operands, Replay
from losscli.implementations.implementation import Implementation
from losscli.implementations.local import LocalSubject
from losscli.implementations.process_state import StateChange
from losscli.implementations.remote import RemoteSubject

Gradients = dict[str, Tensor | None]


class Subject(Protocol):
    """An implementation with the reduction and parameters of a case fixed.

    All methods raise SubjectError, with the first line of what the implementation raised.
    """

    @property
    def implementation(self) -> Implementation:
        """The implementation."""
        ...

    @property
    def case(self) -> Case:
        """The case."""
        ...

    @property
    def name(self) -> str:
        """The name of the implementation."""
        ...

    @property
    def device(self) -> str:
        """The device."""
        ...

    def again(self) -> Subject:
        """Bind the implementation anew, so that a compiled one forgets earlier inputs."""
        ...

    def loss(self, operands: Operands, wrt: tuple[str, ...] = (), /) -> Tensor:
        """Return the loss, on the path that also prepares the gradients of ``wrt``."""
        ...

    def answer(self, call: Call, /) -> Answer:
        """Return the finished loss and gradients of a call."""
        ...

    def retained(self, call: Call, incoming: Sequence[Tensor], /) -> Iterable[Answer]:
        """Give an answer for each incoming gradient, all through one graph, which is retained."""
        ...

    def accumulated(self, call: Call, before: Mapping[str, Tensor], times: int, /) -> Gradients:
        """Return ``.grad`` of the operands after ``times`` backward passes, each of a new loss."""
        ...

    def second_derivatives(self, asked: Curvature, /) -> Gradients:
        """Return the derivatives by the operands and the incoming gradient; None where none is.

        Raises NoSecondDerivativesError if the gradients cannot be differentiated.
        """
        ...

    def joint_gradients(self, heads: Sequence[Head], /) -> list[Gradients]:
        """Return the gradients of each head after one backward pass through their weighted sum.

        All heads are of this implementation.
        """
        ...

    def shared_memory(self, call: Call, /) -> tuple[str, str] | None:
        """Return the first result of two calls that shares memory, and with what; or None."""
        ...

    def poisoned(self, call: Call, pattern: int, /) -> Answer:
        """Answer where the memory that a result may get is full of one byte."""
        ...

    def growth(self, call: Call, /) -> int:
        """Return the bytes that many calls more take and keep; 0 if that is noise."""
        ...

    def extra_bytes(self, call: Call, /) -> int:
        """Return the most bytes that a call holds beyond its results."""
        ...

    def watch(self, step: Callable[[], object], /) -> list[StateChange]:
        """Return what a step of this subject has changed in its process, which is brought back."""
        ...

    def changed(self, call: Call, name: str, data: Tensor, /) -> Answer:
        """Answer a call of which an operand gets other memory between forward and backward."""
        ...

    def backward_replays(self, call: Call, incoming: Sequence[Tensor], /) -> Iterable[Answer]:
        """Give an answer for each replay of a graph in which backward alone was captured.

        The incoming gradient is copied before a replay to the memory that the graph reads.
        """
        ...

    def graphed(self, call: Call, incoming: Sequence[Tensor], /) -> Iterable[Answer]:
        """Give an answer for each incoming gradient, forward and backward in a graph each."""
        ...

    def in_thread(self, calls: Sequence[Call], /) -> list[Answer]:
        """Answer calls one after the other in a thread of their own, all finished at the end."""
        ...

    def on_streams(self, queues: Sequence[Sequence[Call | Replay]], /) -> list[list[Answer]]:
        """Run each queue on its own CUDA stream, all at once, one request of each in turn.

        The streams wait for the current stream, which then waits for them.
        """
        ...

    def record(self, calls: Sequence[Call], /) -> list[int]:
        """Capture each call in its own graph; return the graphs' numbers."""
        ...

    def replay(self, replay: Replay, /) -> Answer:
        """Replay on the current stream; return a finished copy of the results."""
        ...

    def forget(self) -> None:
        """Free the memory of all graphs."""
        ...


def bind(implementation: Implementation, case: Case) -> Subject:
    """Fix reduction and parameters; what a file defines is asked in a process of its own."""
    if implementation.file:
        # Its methods are those of a table, which no type checker reads.
        return cast("Subject", RemoteSubject.bind(implementation, case))
    return LocalSubject.bind(implementation, case)


def subject_of(name: str, case: Case) -> Subject:
    """Return the subject of an implementation by its name; UsageError lists the names."""
    return bind(find_implementation(name), case)


@contextmanager
def recordings(subject: Subject, calls: Sequence[Call]) -> Iterator[list[Replay]]:
    """Capture each call in its own graph, to be replayed; their memory is freed at the end."""
    try:
        numbers = subject.record(calls)
        yield [Replay(number, call) for number, call in zip(numbers, calls, strict=True)]
    finally:
        subject.forget()
