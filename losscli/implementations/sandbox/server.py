"""What runs in a worker: loads a file, and answers requests about it.

The code of others shares this process. So nothing here knows what is right, and what it reports of
itself is checked by the judge where that can be done: by the bytes of the answers, and by the
judge's clock.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from losscli.cases.case import Case
from losscli.cases.model_case import Argument, ModelCase
from losscli.errors import LosscliError, first_line
from losscli.implementations import loading
from losscli.implementations.call_data import Answer, Call
from losscli.implementations.errors import NoSecondDerivativesError, SubjectError
from losscli.implementations.implementation import Implementation
from losscli.implementations.local import LocalSubject
from losscli.implementations.process_state import ProcessState, StateChange
from losscli.implementations.sandbox import builds, messages, unmarked
from losscli.implementations.sandbox.messages import (
    Load,
    Raised,
    Ready,
    Replied,
    Reply,
    Request,
    Tunes,
)
from losscli.implementations.sandbox.methods import (
    METHODS,
    Samples,
    TimedData,
)
from losscli.implementations.sandbox.modules import BoundModel, arguments_of, make, state_of
from losscli.implementations.sandbox.program import Binding, bound, import_source
from losscli.implementations.sandbox.timed import TimedPass
from losscli.implementations.sandbox.tuning import Tuning
from losscli.implementations.sandbox.wire import Incoming, read
from losscli.implementations.source import Source
from losscli.losses import Shape
from losscli.machine.devices import is_broken
from losscli.machine.memory import is_out_of_memory
from losscli.processes import Channel

if TYPE_CHECKING:
    from losscli.implementations.implementation import BoundLoss

TIMING = ("warm_up", "samples", "looped")
"""The methods that ask what is being timed."""
WATCHED_SECONDS, WATCHES = 0.1, 10
"""A worker that is asked nothing computes in less than half of this, soon: threads of OpenMP look
for work for a while, which takes longer where others wait for the same cores."""


def serve(
    channel: int, operands: int, results: int, device: str, scratch: str, reached: tuple[str, ...]
) -> None:
    """Answer until the judge hangs up."""
    with Channel(socket.socket(fileno=channel)) as connection:
        messages.send(connection, Ready(list(reached), scratch))
        server, own = _Server(Incoming(operands, results), device, scratch), os.getpid()
        server.tuning = Tuning(lambda: messages.send(connection, Tunes(server.number)))
        while (question := messages.receive_question(connection)) is not None:
            reply = server.reply(question)
            if os.getpid() != own:
                messages.send(connection, Raised("a call returned in a second process", "forked"))
                os._exit(1)
            messages.send(connection, reply)


class _Server:
    """The state of a worker: the module, and subjects by case."""

    def __init__(self, incoming: Incoming, device: str, scratch: str) -> None:
        self.incoming, self.device, self.scratch = incoming, device, scratch
        self.module: ModuleType | None = None
        self.subjects: dict[tuple[Case, int, bool], LocalSubject] = {}
        self.timed: TimedPass | None = None
        self.before = ProcessState.read()
        self.file: Source
        self.source: tuple[str, str, str, str]
        self.order: tuple[str, ...] = ()
        self.number = 0
        self.tuning = Tuning(lambda: None)

    def reply(self, question: Load | Request) -> Reply:
        """Answer one question; what is raised is an answer as well."""
        self.number = question.number
        self.tuning.watch()
        try:
            value = self._load(question) if isinstance(question, Load) else self._answer(question)
        except Exception as error:
            raised = _raised(error, isinstance(question, Load), self.file)
            raised.broke = is_broken(self.device)
            raised.number = question.number
            return raised
        return Replied(question.number, value)

    def _load(self, question: Load) -> Any:
        path, data = Path(question.path), question.source.encode()
        self.file = Source(question.named, path, question.revision, question.name, data)
        self.order = tuple(question.order)
        if question.built:
            builds.unpack(
                read(self.incoming.operands, 0, question.built).numpy().data, self.scratch
            )
        beside, name = "" if question.revision else question.path, Path(question.path).stem
        self.source = question.source, beside, name, self.scratch
        if not question.unmarked:
            self.module = import_source(*self.source)
            self.tuning.watch()
        return self.incoming.encode(None)

    def _answer(self, request: Request) -> Any:
        if request.method not in METHODS:
            raise LosscliError(f"there is no method {request.method}")
        asked = METHODS[request.method]
        self.incoming.read(request.storages)
        arguments = self.incoming.decode(request.arguments, asked.arguments)
        # The operands have started CUDA.
        self.before = self.before.completed()
        case = request.model or request.case
        subject = self._subject(case, request.generation, request.mends) if case else None
        own = getattr(self, f"do_{request.method}", None)
        asks = self._timing if request.method in TIMING else subject
        value = own(subject, *arguments) if own else getattr(asks, request.method)(*arguments)
        if isinstance(value, Iterator):
            value = list(value)
        raw = self.incoming.encode(value)
        if not asked.keeps_operands:
            self.incoming.write_back()
        return raw

    def _subject(self, case: Case, generation: int, mends: bool) -> LocalSubject:
        """Return the subject of a case, bound once for each generation."""
        key = case, generation, mends
        if key not in self.subjects:
            for known in [each for each in self.subjects if each[0] == case]:
                del self.subjects[known]
            implementation = Implementation(self.file.named, "", partial(self._bind, mends=mends))
            self.subjects[key] = LocalSubject.bind(implementation, case)
        return self.subjects[key]

    def _bind(self, case: Case, *, mends: bool) -> BoundLoss:
        """Return what the file defines, as a case calls it."""
        assert self.module is not None
        if isinstance(case, ModelCase):
            return BoundModel(self.module, self.file.definition(""), case)
        function = bound(self.module, self._binding(case))
        return loading.mended(function, case) if mends else function

    def _binding(self, case: Case) -> Binding:
        """Return how a case calls what the file defines."""
        definition = self.file.definition(case.loss)
        order = definition.signature.order(case.spec.names, self.order)
        return loading.binding(definition, order, case)

    def do_unmarked(
        self, subject: LocalSubject | None, calls: list[Call], case: Case
    ) -> Iterator[Answer]:
        """Yield the answers of processes that look like a user's own."""
        return unmarked.answers(self.file, self.source, self._binding(case), calls)

    def do_compiled(self, subject: LocalSubject | None) -> torch.Tensor:
        """Return what has been compiled until now."""
        packed = builds.pack(self.scratch)
        empty = torch.empty(0, dtype=torch.uint8)
        return torch.frombuffer(packed, dtype=torch.uint8) if packed else empty

    def do_tuned(self, subject: LocalSubject | None) -> float:
        """Return how many seconds its tuners have taken until now."""
        return self.tuning.seconds

    def do_bound(self, subject: LocalSubject) -> None:
        """Bind a subject, which has been done."""

    def do_record(self, subject: LocalSubject, calls: list[Call]) -> list[int]:
        self.incoming.keep()
        return subject.record(calls)

    def do_forget(self, subject: LocalSubject) -> None:
        subject.forget()
        self.incoming.drop()

    def do_timed(self, subject: LocalSubject, asked: TimedData) -> Samples:
        self.incoming.keep()
        self.timed = TimedPass(subject, asked)
        return self.timed.first()

    @property
    def _timing(self) -> TimedPass:
        if self.timed is None:
            raise LosscliError("nothing is being timed")
        return self.timed

    def do_changes(self, subject: LocalSubject | None) -> list[StateChange]:
        """Return what has been changed in this process since the last time; bring it back."""
        changed = self.before.restore()
        self.before = ProcessState.read()
        return changed

    def do_inputs(self, subject: LocalSubject | None) -> list[tuple[Shape, str]]:
        """Return shape and dtype of what the file's ``get_inputs`` gives, without computing it."""
        make: Any = getattr(self.module, "get_inputs", list)
        try:
            with torch.device("meta"):
                given = make()
        except Exception:
            given = make()
        return [
            (tuple(each.shape), str(each.dtype).removeprefix("torch."))
            for each in given
            if isinstance(each, torch.Tensor)
        ]

    def do_model_arguments(self, subject: LocalSubject | None) -> list[Argument]:
        """Return what the file's ``get_inputs`` gives, without its contents."""
        assert self.module is not None
        return arguments_of(self.module)

    def do_model_state(
        self, subject: LocalSubject | None, seed: int
    ) -> tuple[dict[str, torch.Tensor], list[str]]:
        """Return the parameters and buffers of what the file defines."""
        assert self.module is not None
        return state_of(make(self.module, self.file.definition(""), self.device, seed))

    def do_leftovers(self, subject: LocalSubject | None) -> list[str]:
        """Name the processes that the candidate has left running."""
        own = os.getpid()
        if own == 1 and os.readlink("/proc/self") == "1":  # it shows those of the namespace alone
            pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        else:
            pids = []
            for parent in ("self", os.getppid()):  # orphans belong to the keeper
                for listed in Path(f"/proc/{parent}/task").glob("*/children"):
                    with contextlib.suppress(OSError):
                        pids += map(int, listed.read_text().split())
        left = [_name_of(pid) for pid in pids if pid != own and not _is_zombie(pid)]
        return left or (["a thread that goes on computing"] if goes_on_computing() else [])


def _raised(error: Exception, loads: bool, file: Source) -> Raised:
    """Return an exception as an answer."""
    text = first_line(error)
    if is_out_of_memory(error):
        return Raised(text, "out_of_memory")
    if isinstance(error, NoSecondDerivativesError):
        return Raised(text, "no_second_derivatives")
    cause = error.__cause__ if isinstance(error, SubjectError) else error
    if cause is not None and loading.is_of_compiler(cause):
        told = loading.first_error(cause, file.text, file.path.name)
        return Raised(f"{type(cause).__name__}: {told}", "build")
    if loads:
        return Raised(f"{type(error).__name__}: {loading.first_error(error)}", "import")
    if isinstance(error, SubjectError):
        return Raised(text, "raised", error.refused, error.code)
    if isinstance(error, LosscliError):
        return Raised(text, "error")
    return Raised(f"raised {type(error).__name__}: {text}".rstrip(": "), "raised")


def goes_on_computing() -> bool:
    """Tell whether threads of this process compute while it sleeps, for a second on end."""
    for _ in range(WATCHES):
        before = _wanted_seconds()
        time.sleep(WATCHED_SECONDS)
        if _wanted_seconds() - before < WATCHED_SECONDS / 2:
            return False
    return True


def _wanted_seconds() -> float:
    """Return how long the threads of this process have computed, or waited for a core to compute.

    Without the kernel's account of the waiting, how long they have computed.
    """
    if not Path("/proc/self/schedstat").exists():
        return time.process_time()
    nanoseconds = 0
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            computed, waited, _ = Path(f"/proc/self/task/{thread}/schedstat").read_text().split()
            nanoseconds += int(computed) + int(waited)
    return nanoseconds / 1e9


def _name_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return str(pid)


def _is_zombie(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True
