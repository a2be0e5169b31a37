"""The interface of verify and bench to an implementation in this process or a worker.

A subject is plain data (an implementation and a case) with tensors as arguments and results, so it
can live in another process.
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
    """An implementation with a case's reduction and parameters.

    Its methods raise SubjectError with the first line of an implementation's exception.
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
        """Bind again, so that a compiled implementation forgets earlier inputs."""
        ...

    def send(self, request: Request[R], /) -> R:
        """Perform a request in the process of the implementation; return its response."""
        ...

    def watch(self, step: Callable[[], object], /) -> list[StateChange]:
        """Return and restore the process state that a step changed."""
        ...


def bind(implementation: Implementation, case: Case) -> Subject:
    """Fix reduction and parameters; a file runs in a separate process."""
    if implementation.file:
        return RemoteSubject.bind(implementation, case)
    return LocalSubject.bind(implementation, case)


def subject_of(name: str, case: Case) -> Subject:
    """Return the subject of a named implementation; UsageError lists the names."""
    return bind(find_implementation(name), case)


@contextmanager
def recordings(subject: Subject, calls: Sequence[Call]) -> Iterator[list[Replay]]:
    """Capture each call in its own graph for replay; free them at the end."""
    try:
        numbers = subject.send(Capture(calls))
        yield [Replay(number, call) for number, call in zip(numbers, calls, strict=True)]
    finally:
        subject.send(FreeGraphs())
