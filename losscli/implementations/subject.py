"""What verify and bench ask of an implementation, in this process or, for a file, in a worker.

A subject is made of plain data (an implementation and a case), and takes and returns tensors, so it
can live in another process than its caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from losscli.cases.case import Case
from losscli.implementations.builtin import find_implementation
from losscli.implementations.gpu_requests import Capture, FreeGraphs, Replay
from losscli.implementations.implementation import Implementation
from losscli.implementations.local import LocalSubject, R
from losscli.implementations.process_state import StateChange
from losscli.implementations.remote import RemoteSubject
from losscli.implementations.requests import Call, Request


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

    def send(self, request: Request[R], /) -> R:
        """Perform a request where the implementation lives, and return the response."""
        ...

    def watch(self, step: Callable[[], object], /) -> list[StateChange]:
        """Return what a step of this subject has changed in its process, which is brought back."""
        ...


def bind(implementation: Implementation, case: Case) -> Subject:
    """Fix reduction and parameters; what a file defines is asked in a process of its own."""
    if implementation.file:
        return RemoteSubject.bind(implementation, case)
    return LocalSubject.bind(implementation, case)


def subject_of(name: str, case: Case) -> Subject:
    """Return the subject of an implementation by its name; UsageError lists the names."""
    return bind(find_implementation(name), case)


@contextmanager
def recordings(subject: Subject, calls: Sequence[Call]) -> Iterator[list[Replay]]:
    """Capture each call in its own graph, to be replayed; their memory is freed at the end."""
    try:
        numbers = subject.send(Capture(calls))
        yield [Replay(number, call) for number, call in zip(numbers, calls, strict=True)]
    finally:
        subject.send(FreeGraphs())
