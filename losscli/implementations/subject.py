"""The interface of verify and bench to an implementation in this process or a worker."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from losscli.cases.case import Case
from losscli.implementations.builtin import find_implementation
from losscli.implementations.gpu_requests import Capture, FreeGraphs, Replay
from losscli.implementations.implementation import Implementation
from losscli.implementations.local import LocalSubject
from losscli.implementations.local import Subject as Subject
from losscli.implementations.process_state import ProcessState, StateChange
from losscli.implementations.remote import RemoteSubject, changes_of
from losscli.implementations.requests import Call


def bind(implementation: Implementation, case: Case) -> Subject:
    """Fix a case's reduction and parameters; a file runs in a separate process."""
    if implementation.file:
        return RemoteSubject.bind(implementation, case)
    return LocalSubject.bind(implementation, case)


def subject_of(name: str, case: Case) -> Subject:
    """Return the subject of a named implementation; UsageError if there is none."""
    return bind(find_implementation(name), case)


def watch(subject: Subject, step: Callable[[], object]) -> list[StateChange]:
    """Return and restore the process state that a step changed."""
    if file := subject.implementation.file:
        changes_of(file)
        step()
        return changes_of(file)
    before = ProcessState.read()
    try:
        step()
    finally:
        changed = before.restore()
    return changed


@contextmanager
def recordings(subject: Subject, calls: Sequence[Call]) -> Iterator[list[Replay]]:
    """Capture each call in its own graph; free the graphs at the end."""
    try:
        subject.send(Capture(calls))
        yield [Replay(call, number) for number, call in enumerate(calls)]
    finally:
        subject.send(FreeGraphs())
