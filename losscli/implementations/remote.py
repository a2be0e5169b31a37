"""The subject of a file: the same methods, answered by a worker."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
from torch import Tensor

from losscli.axes import GradOutput, PassName
from losscli.cases import Case
from losscli.implementations.call_data import Answer, Call, Curvature, Operands, Replay
from losscli.implementations.caller import Head, SandboxError, Subject
from losscli.implementations.files import UserFile
from losscli.implementations.implementation import Implementation
from losscli.implementations.sandbox.methods import (
    Flip,
    Gradients,
    HeadData,
    ReplayData,
    Samples,
    TimedData,
    Turn,
    WarmData,
)
from losscli.implementations.sandbox.process import Allowance, Worker
from losscli.machine.memory import free_bytes

MOST_DEATHS = 3
"""After so many a file is not started again."""


VARIABLE = "LOSSCLI_SANDBOX"
"""Holds the setting for processes that this one starts."""


@dataclass(frozen=True)
class Setting:
    """What workers may take, and in which order arguments are given."""

    allowance: Allowance = field(default_factory=Allowance)
    order: tuple[str, ...] = ()


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
        _settings.remove(wanted)
        os.environ.pop(VARIABLE)
        if before is not None:
            os.environ[VARIABLE] = before


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
            allowance = setting().allowance
            if not allowance.memory_bytes and device == "cpu":
                allowance = replace(allowance, memory_bytes=free_bytes("cpu") // 2)
            try:
                worker = self._workers[key] = Worker(file, device, allowance, setting().order)
            except SandboxError as error:
                self.logs[file] = error.log
                raise
        return worker

    def known(self, file: UserFile) -> list[Worker]:
        """Return the workers of a file that were started."""
        return [worker for (each, _), worker in self._workers.items() if each == file]

    def end(self, file: UserFile | None = None) -> None:
        """End the workers of a file, or all."""
        for key in [key for key in self._workers if file in (None, key[0])]:
            self.logs[key[0]] = self._workers.pop(key).end()


workers = Workers()
atexit.register(workers.end)


def changes_of(file: UserFile) -> list[str]:
    """Return what the calls of a file have changed in its process since the last time."""
    changed: dict[str, None] = {}
    for worker in workers.known(file):
        if not worker.died:
            with suppress(SandboxError):  # it has died: the next question says so
                changed |= dict.fromkeys(worker.ask("changes", case=None))
    return list(changed)


def _refuse(*operands: Tensor) -> Tensor:
    raise RuntimeError("a file is only called in its worker")


@dataclass(frozen=True)
class RemoteRecording:
    """A recording that a worker keeps."""

    number: int
    call: Call


@dataclass(frozen=True)
class RemoteSubject(Subject):
    """What a file defines, bound to a case, in a worker."""

    generation: int = 0

    @classmethod
    def of_file(cls, implementation: Implementation, case: Case) -> RemoteSubject:
        """Bind it, which builds what it needs."""
        subject = cls(implementation, case, _refuse)
        subject._ask("bound")
        return subject

    def _ask(self, method: str, *arguments: Any) -> Any:
        return self.worker.ask(method, *arguments, case=self.case, generation=self.generation)

    @property
    def worker(self) -> Worker:
        """The worker that answers."""
        assert self.implementation.file
        return workers.of(self.implementation.file, self.case.device)

    def again(self) -> Subject:
        """See :class:`Subject`."""
        subject = replace(self, generation=self.generation + 1)
        subject._ask("bound")
        return subject

    def loss(self, operands: Operands, wrt: tuple[str, ...] = ()) -> Tensor:
        """See :class:`Subject`."""
        loss: Tensor = self._ask("loss", operands, wrt)
        return loss

    def answer(self, call: Call) -> Answer:
        """See :class:`Subject`."""
        answer: Answer = self._ask("answer", call)
        return answer

    def retained(self, call: Call, incoming: Sequence[Tensor]) -> Iterator[Answer]:
        """See :class:`Subject`."""
        yield from self._ask("retained", call, list(incoming))

    def accumulated(
        self, call: Call, before: Mapping[str, Tensor], times: int
    ) -> dict[str, Tensor | None]:
        """See :class:`Subject`."""
        gradients: Gradients = self._ask("accumulated", call, dict(before), times)
        return gradients

    def second_derivatives(self, asked: Curvature) -> dict[str, Tensor | None]:
        """See :class:`Subject`."""
        found: dict[str, Tensor | None] = self._ask("second_derivatives", asked)
        return found

    def shared_memory(self, call: Call) -> tuple[str, str] | None:
        """See :class:`Subject`."""
        shared: tuple[str, str] | None = self._ask("shared_memory", call)
        return shared

    def poisoned(self, call: Call, pattern: int) -> Answer:
        """See :class:`Subject`."""
        answer: Answer = self._ask("poisoned", call, pattern)
        return answer

    def growth(self, call: Call) -> int:
        """See :class:`Subject`."""
        grown: int = self._ask("growth", call)
        return grown

    def extra_bytes(self, call: Call) -> int:
        """See :class:`Subject`."""
        extra: int = self._ask("extra_bytes", call)
        return extra

    def watch(self, step: Callable[[], object]) -> list[str]:
        """See :class:`Subject`."""
        self.implementation.changes()
        step()
        return self.implementation.changes()

    def joint_gradients(self, heads: Sequence[Head]) -> list[Gradients]:
        """See :class:`Subject`."""
        data = [HeadData(head.subject.case, head.call, head.weight) for head in heads]
        gradients: list[Gradients] = self._ask("joint_gradients", data)
        return gradients

    def changed(self, call: Call, name: str, data: Tensor) -> Answer:
        """See :class:`Subject`."""
        answer: Answer = self._ask("changed", call, name, data)
        return answer

    def backward_replays(self, call: Call, incoming: Sequence[Tensor]) -> Iterator[Answer]:
        """See :class:`Subject`."""
        yield from self._ask("backward_replays", call, list(incoming))

    def graphed(self, call: Call, incoming: Sequence[Tensor]) -> Iterator[Answer]:
        """See :class:`Subject`."""
        yield from self._ask("graphed", call, list(incoming))

    def on_streams(self, queues: Sequence[Sequence[Call | Replay]]) -> list[list[Answer]]:
        """See :class:`Subject`."""
        turns = [
            [
                Turn(replay=_data(each)) if isinstance(each, Replay) else Turn(call=each)
                for each in queue
            ]
            for queue in queues
        ]
        answers: list[list[Answer]] = self._ask("on_streams", turns)
        return answers

    @contextmanager
    def recordings(self, calls: Sequence[Call]) -> Iterator[list[Any]]:
        """See :class:`Subject`."""
        numbers = self._ask("record", list(calls))
        try:
            yield [RemoteRecording(n, call) for n, call in zip(numbers, calls, strict=True)]
        finally:
            if not self.worker.died:
                self._ask("forget")

    def replay(self, replay: Replay) -> Answer:
        """See :class:`Subject`."""
        answer: Answer = self._ask("replay", _data(replay))
        return answer

    def timed(
        self,
        pass_: PassName,
        operands: Operands,
        grad_output: GradOutput,
        *,
        evicts: bool,
        captured: bool,
    ) -> Samples:
        """Prepare a pass to be timed; return what one call gives."""
        asked = TimedData(pass_, operands, grad_output, evicts, captured)
        found: Samples = self._ask("timed", asked)
        return found

    def warm_up(self) -> WarmData:
        """Warm the pass up that was prepared last."""
        warm: WarmData = self._ask("warm_up")
        return warm

    def samples(self, flips: Sequence[Flip], keep: int) -> Samples:
        """Take a sample of the pass after each change of the prediction."""
        found: Samples = self._ask("samples", list(flips), keep)
        return found

    def looped(self, calls: int) -> None:
        """Call the pass so often, and wait for all of it."""
        self._ask("looped", calls)


def _data(replay: Replay) -> ReplayData:
    recording: Any = replay.recording
    return ReplayData(recording.number, recording.call, replay.contents)
