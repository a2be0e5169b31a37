"""The subject of a file, whose methods a worker answers, and the workers of this process."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from losscli.cases.case import Case
from losscli.implementations.allowance import Allowance
from losscli.implementations.errors import SandboxError
from losscli.implementations.files import UserFile
from losscli.implementations.implementation import Implementation
from losscli.implementations.local import R
from losscli.implementations.process_state import StateChange
from losscli.implementations.requests import Answer, Bind, Call, Request
from losscli.implementations.sandbox.process import Worker
from losscli.implementations.sandbox.requests import Changes, Compiled, Mend, Unmarked
from losscli.implementations.sandbox.scratch import scratch_directory
from losscli.machine.memory import free_bytes

MOST_DEATHS = 3
"""The number of deaths after which a file is not started again."""


VARIABLE = "LOSSCLI_SANDBOX"
"""Holds the setting for processes that this one starts."""


@dataclass(frozen=True)
class Setting:
    """What workers may take, and in which order arguments are given."""

    allowance: Allowance = field(default_factory=Allowance)
    order: tuple[str, ...] = ()
    mends: bool = False
    """Whether a result that fits in value alone is reduced, reshaped and converted as is due."""
    require_isolation: bool = False
    """Whether a file is not to run where a part of the walls is missing."""
    lacking: tuple[str, ...] = ()
    """Operands of which files have no gradient, as PyTorch's own function has none."""
    built: dict[str, str] = field(default_factory=dict)
    """Files that hold what a file has compiled, by the digest of that file's source."""


_settings: list[Setting] = []


def setting() -> Setting:
    """Return the setting of this process: that of a judge, or of who has started it."""
    if not _settings:
        given = os.environ.get(VARIABLE)
        _settings.append(msgspec.json.decode(given, type=Setting) if given else Setting())
    return _settings[-1]


@contextmanager
def use(wanted: Setting) -> Iterator[None]:
    """Use another setting, here and in the processes that are started meanwhile."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = msgspec.json.encode(wanted).decode()
    _settings.append(wanted)
    try:
        yield
    finally:
        for path in _settings.pop().built.values():
            Path(path).unlink(missing_ok=True)
        os.environ.pop(VARIABLE)
        if before is not None:
            os.environ[VARIABLE] = before


def mend(file: UserFile) -> None:
    """Have the results of a file mended from now on, in its workers and in those to come."""
    _change(replace(setting(), mends=True))
    for worker in workers.known(file):
        worker.ask(Mend(), case=None)


def leave_out(operands: tuple[str, ...]) -> None:
    """Ask for no gradient of some operands from now on."""
    _change(replace(setting(), lacking=operands))


def share_build(file: UserFile, device: str) -> None:
    """Have later workers of a file begin with what it has compiled, here and in processes to come.

    To be called before it has been given an operand. On a full disk each of them compiles anew.
    """
    packed = workers.of(file, device).ask(Compiled(), case=None)
    if packed.numel():
        path = scratch_directory() / f"built-{file.sha256[:16]}"
        try:
            path.write_bytes(packed.numpy().data)
        except OSError:
            path.unlink(missing_ok=True)
            return
        _change(replace(setting(), built={**setting().built, file.sha256: str(path)}))


def _change(wanted: Setting) -> None:
    _settings[-1] = wanted
    os.environ[VARIABLE] = msgspec.json.encode(wanted).decode()


class Workers:
    """The workers of this process: one for each file and device."""

    def __init__(self) -> None:
        self._workers: dict[tuple[UserFile, str], Worker] = {}
        self._deaths: dict[tuple[UserFile, str], list[SandboxError]] = {}
        self.logs: dict[UserFile, str] = {}

    def of(self, file: UserFile, device: str) -> Worker:
        """Return the worker of a file, a new one after the last has died."""
        key = file, device
        worker = self._workers.get(key)
        deaths = self._deaths.setdefault(key, [])
        if worker and worker.died:
            deaths.append(worker.died)
            self.end(file)
            worker = None
        if len(deaths) >= MOST_DEATHS:
            raise SandboxError(deaths[-1].code, f"{deaths[-1]}, {len(deaths)} times")
        if worker is None:
            worker = self._workers[key] = self._start(file, device)
        return worker

    def unmarked(self, file: UserFile, calls: list[Call], case: Case) -> list[Answer]:
        """Return answers of processes, one after the other, that look like a user's own."""
        worker = self._start(file, case.device, unmarked=True)
        try:
            found = [*worker.ask(Unmarked(calls, case), case=None)]
        finally:
            self.logs[file] = worker.end()
        return found

    def _start(self, file: UserFile, device: str, *, unmarked: bool = False) -> Worker:
        wanted = setting()
        allowance = wanted.allowance
        if not allowance.memory_bytes:
            allowance = structs.replace(allowance, memory_bytes=free_bytes("cpu") // 2)
        known = wanted.built.get(file.sha256)
        built = b""
        with suppress(OSError):  # without it the file compiles again
            built = Path(known).read_bytes() if known else b""
        more: dict[str, Any] = {"mends": wanted.mends, "unmarked": unmarked, "built": built}
        more["require_isolation"] = wanted.require_isolation
        try:
            return Worker(file, device, allowance, wanted.order, **more)
        except SandboxError as error:
            self.logs[file] = error.log
            raise

    def known(self, file: UserFile) -> list[Worker]:
        """Return the workers of a file that were started."""
        return [worker for (each, _), worker in self._workers.items() if each == file]

    def end(self, file: UserFile | None = None) -> None:
        """End the workers of a file, or all."""
        for key in [key for key in self._workers if file in (None, key[0])]:
            self.logs[key[0]] = self.logs.get(key[0], "") + self._workers.pop(key).end()

    def end_others(self, files: Collection[UserFile | None]) -> None:
        """End the workers of all files but these."""
        for file in {file for file, _ in self._workers} - {*files}:
            self.end(file)


workers = Workers()
atexit.register(workers.end)


def changes_of(file: UserFile) -> list[StateChange]:
    """Return what the calls of a file have changed in its process since the last time."""
    changed: dict[StateChange, None] = {}
    for worker in workers.known(file):
        if not worker.died:
            with suppress(SandboxError):  # it has died: the next question says so
                changed |= dict.fromkeys(worker.ask(Changes(), case=None))
    return list(changed)


@dataclass(frozen=True)
class RemoteSubject:
    """See :class:`~losscli.implementations.subject.Subject`: requests are sent to a worker."""

    implementation: Implementation
    case: Case
    generation: int = 0

    @classmethod
    def bind(cls, implementation: Implementation, case: Case) -> RemoteSubject:
        """Bind it in the worker, which builds what it needs."""
        return cls(implementation, case)._bound()

    @property
    def name(self) -> str:
        """See :class:`Subject`."""
        return self.implementation.name

    @property
    def device(self) -> str:
        """See :class:`Subject`."""
        return self.case.device

    @property
    def file(self) -> UserFile:
        """What the worker has loaded."""
        assert self.implementation.file
        return self.implementation.file

    def again(self) -> RemoteSubject:
        """See :class:`Subject`."""
        return replace(self, generation=self.generation + 1)._bound()

    def send(self, request: Request[R]) -> R:
        """See :class:`Subject`."""
        worker = workers.of(self.file, self.case.device)
        return worker.ask(request, case=self.case, generation=self.generation)

    def watch(self, step: Callable[[], object]) -> list[StateChange]:
        """See :class:`Subject`."""
        changes_of(self.file)
        step()
        return changes_of(self.file)

    def _bound(self) -> RemoteSubject:
        self.send(Bind())
        return self
