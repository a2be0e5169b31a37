"""The interface of verify and bench to an implementation in this process or a worker."""

import atexit
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Self

from losscli.cases.case import Case
from losscli.implementations.builtin import find_implementation
from losscli.implementations.errors import SandboxError
from losscli.implementations.gpu_requests import Capture, FreeGraphs, Replay
from losscli.implementations.implementation import Implementation
from losscli.implementations.local import LocalSubject, R
from losscli.implementations.local import Subject as Subject
from losscli.implementations.process_state import ProcessState, StateChange
from losscli.implementations.requests import Answer, Call, Request
from losscli.implementations.sandbox.client import Worker
from losscli.implementations.sandbox.scratch import scratch_directory
from losscli.implementations.sandbox.worker_requests import Bind, Changes, Compiled, Unmarked
from losscli.implementations.source import Source

MOST_DEATHS = 3


class Workers:
    """The workers of this process, one per file and device."""

    def __init__(self) -> None:
        self._workers: dict[tuple[Source, str], Worker] = {}
        self._deaths: dict[tuple[Source, str], list[SandboxError]] = {}
        self.logs: dict[Source, str] = {}

    def of(self, implementation: Implementation, device: str) -> Worker:
        """Return the worker of a file; start one if none is alive."""
        file = implementation.source
        key = file, device
        deaths = self._deaths.setdefault(key, [])
        if (worker := self._workers.get(key)) and worker.died:
            deaths.append(worker.died)
            self.end(file)
        if len(deaths) >= MOST_DEATHS:
            raise SandboxError(f"{deaths[-1]}, {len(deaths)} times", deaths[-1].code)
        if key not in self._workers:
            self._workers[key] = self._start(implementation, device)
        return self._workers[key]

    def unmarked(
        self, implementation: Implementation, calls: list[Call], case: Case
    ) -> list[Answer]:
        """Return the answers of successive processes that look like a user's."""
        worker = self._start(implementation, case.device, unmarked=True)
        try:
            return [*worker.ask(Unmarked(calls, case))]
        finally:
            self.logs[worker.file] = worker.end()

    def _start(self, implementation: Implementation, device: str, unmarked: bool = False) -> Worker:
        try:
            return Worker(implementation.source, device, implementation.setting, unmarked=unmarked)
        except SandboxError as error:
            self.logs[implementation.source] = error.log
            raise

    def known(self, file: Source | None) -> list[Worker]:
        """Return the started workers of a file."""
        return [worker for (each, _), worker in self._workers.items() if each == file]

    def end(self, file: Source | None = None) -> None:
        """End the workers of a file, or all."""
        for key in [key for key in self._workers if file in (None, key[0])]:
            self.logs[key[0]] = self.logs.get(key[0], "") + self._workers.pop(key).end()

    def renew(self, file: Source) -> None:
        """End the workers of a file and forget earlier deaths: it is called in another way now."""
        self.end(file)
        self._deaths = {key: own for key, own in self._deaths.items() if key[0] != file}

    def end_others(self, files: Collection[Source | None]) -> None:
        """End the workers of all files except these."""
        for file in {file for file, _ in self._workers} - {*files}:
            self.end(file)


workers = Workers()
atexit.register(workers.end)


def changes_of(file: Source | None) -> list[StateChange]:
    """Return what calls of a file, if any, changed in its process since the last query."""
    changed: dict[StateChange, None] = {}
    for worker in workers.known(file):
        if not worker.died:
            with suppress(SandboxError):  # it has died, as the next request will report
                changed |= dict.fromkeys(worker.ask(Changes()))
    return list(changed)


def share_build(implementation: Implementation, device: str) -> Implementation:
    """Start later workers with a file's compiled output; call it before it gets an operand."""
    worker = workers.of(implementation, device)
    packed = worker.ask(Compiled())
    if packed.numel():
        path = scratch_directory() / f"built-{worker.file.sha256[:16]}"
        with suppress(OSError):  # on a full disk each worker compiles again
            path.write_bytes(packed.numpy().data)
            return implementation.but(built=str(path))
        path.unlink(missing_ok=True)
    return implementation


@dataclass(frozen=True)
class RemoteSubject(Subject):
    """The subject of a file; requests go to a worker."""

    generation: int = 0

    @classmethod
    def bind(cls, implementation: Implementation, case: Case, generation: int = 0) -> Self:
        """Bind the file in the worker, which builds what it needs."""
        bound = cls(implementation, case, generation)
        bound.send(Bind())
        return bound

    def again(self) -> Self:
        return self.bind(self.implementation, self.case, self.generation + 1)

    def send(self, request: Request[R]) -> R:
        worker = workers.of(self.implementation, self.case.device)
        mends = self.implementation.setting.mends
        return worker.ask(request, case=self.case, generation=self.generation, mends=mends)


def bind(implementation: Implementation, case: Case) -> Subject:
    """Fix a case's reduction and parameters; a file runs in a separate process."""
    kind = RemoteSubject if implementation.file else LocalSubject
    return kind.bind(implementation, case)


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
