"""The state of a worker, and requests to the worker itself, not to its bound implementation."""

import gc
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, ClassVar

import torch
from msgspec import Meta
from torch import Tensor, nn

from losscli.cases.case import Case
from losscli.cases.model_case import Argument, ModelCase
from losscli.implementations import binding
from losscli.implementations.errors import SubjectError
from losscli.implementations.implementation import BoundLoss, Implementation, Mends
from losscli.implementations.languages import Tuning
from losscli.implementations.local import LocalSubject, R_co
from losscli.implementations.process_state import ProcessState, StateChange
from losscli.implementations.requests import Answer, Call, Request, accept_each
from losscli.implementations.sandbox import program, scratch
from losscli.implementations.sandbox.modules import BoundModel, arguments_of, make
from losscli.implementations.source import Source
from losscli.losses import Shape
from losscli.machine.own_processes import children

Seconds = Annotated[float, Meta(ge=0)]
_NAMES_BYTES = 2**20
"""Of compiled files."""
WATCHED_SECONDS, WATCHES = 0.1, 10
"""OpenMP threads spin for a while after a call, longer if they share cores."""


class State:
    """What requests to a worker read and change."""

    def __init__(self, device: str, scratch: str, tuning: Tuning) -> None:
        self.device, self.scratch, self.tuning, self.number = device, scratch, tuning, 0
        self.module: ModuleType
        """The imported file, unless it is ``unmarked``."""
        self.subjects: dict[tuple[Case, int, Mends], LocalSubject] = {}
        self.local: LocalSubject | None = None
        """The subject of a request's case, if it has one."""
        self.timed: Any
        """The pass of timed requests."""
        self.before = ProcessState.read()
        self.constructed: dict[StateChange, bool] = {}
        """Changes by binding, and whether they were reported."""
        self.file: Source
        self.source: tuple[str, str, str, str]
        self.order: tuple[str, ...] = ()

    def subject(self, case: Case, generation: int, mends: Mends) -> LocalSubject:
        """Return the subject of a case, bound once for each generation."""
        key = case, generation, mends
        if key not in self.subjects:
            for known in [each for each in self.subjects if each[0] == case]:
                del self.subjects[known]
            implementation = Implementation(self.file.named, "", partial(self._bind, mends=mends))
            self.subjects[key] = LocalSubject.bind(implementation, case)
        return self.subjects[key]

    def _bind(self, case: Case, *, mends: Mends) -> BoundLoss:
        """Return the file's definition as a case calls it; note changes by its constructor."""
        before = ProcessState.read()
        try:
            if isinstance(case, ModelCase):
                return BoundModel(self.module, self.file.definition(""), case, copies=bool(mends))
            how = binding.binding(self.file, case, self.order)
            function = program.bound(self.module, how)
        finally:
            for change in before.restore():
                self.constructed.setdefault(change, False)
        if "operands" in mends:
            function = binding.on_copies(function)
        if "gradients" in mends:
            function = binding.with_all_gradients(function, case)
        return binding.mended(function, case) if "results" in mends else function


class WorkerRequest(Request[R_co], frozen=True):
    """A request to a worker itself."""

    def perform_at(self, state: State) -> R_co:
        """Perform it in the worker."""
        raise NotImplementedError


class Load(WorkerRequest[None], frozen=True):
    """Import the file; the first request."""

    takes_long: ClassVar[bool] = True
    owns_operands: ClassVar[bool] = True
    file: Source
    order: tuple[str, ...]
    unmarked: bool
    """Whether to import it later, in a process that looks like a user's."""
    built: Tensor
    """An earlier worker's compiled output."""

    def perform_at(self, state: State) -> None:
        file, state.file, state.order = self.file, self.file, self.order
        if self.built.numel():
            scratch.unpack(self.built.numpy().data, state.scratch)
        # Without a revision, it may import neighbouring files.
        beside, name = "" if file.revision else str(file.path), file.module or file.path.stem
        state.source = file.program, beside, name, state.scratch
        if not self.unmarked:
            state.module = program.import_source(*state.source)
            state.tuning.watch()


class Bind(WorkerRequest[None], frozen=True):
    """Bind the implementation to the case and build what it needs."""

    takes_long: ClassVar[bool] = True

    def perform_at(self, state: State) -> None:
        pass


class TuningSeconds(WorkerRequest[Seconds], frozen=True):
    """Total seconds of tuning so far."""

    def perform_at(self, state: State) -> float:
        return state.tuning.seconds


class Compiled(WorkerRequest[Tensor], frozen=True):
    """The packed compiled output so far."""

    takes_long: ClassVar[bool] = True

    def perform_at(self, state: State) -> Tensor:
        packed = scratch.pack(state.scratch)
        return torch.frombuffer(packed, dtype=torch.uint8) if packed else torch.empty(0).byte()

    def accepts(self, response: Tensor) -> bool:
        fits = response.dim() == 1 and response.nbytes <= scratch.MOST_BYTES + _NAMES_BYTES
        return response.device.type == "cpu" and response.dtype == torch.uint8 and fits


class Changes(WorkerRequest[list[StateChange]], frozen=True):
    """Restore the process state; return changes since the last query, of constructors once."""

    def perform_at(self, state: State) -> list[StateChange]:
        changed = state.before.restore()
        state.before = ProcessState.read()
        unreported = [change for change, reported in state.constructed.items() if not reported]
        state.constructed |= dict.fromkeys(unreported, True)
        return [*changed, *unreported]


class InputShapes(WorkerRequest[list[tuple[Shape, str]]], frozen=True):
    """Shapes and dtypes from ``get_inputs``, without computing it."""

    def perform_at(self, state: State) -> list[tuple[Shape, str]]:
        give: Any = getattr(state.module, "get_inputs", list)
        try:
            with torch.device("meta"):
                given = give()
        except Exception:
            given = give()
        tensors = (each for each in given if isinstance(each, Tensor))
        return [(tuple(t.shape), str(t.dtype).removeprefix("torch.")) for t in tensors]


class Unmarked(WorkerRequest[Iterable[Answer]], frozen=True):
    """The loss and first gradient of processes that look like a user's; see docs/isolation.md."""

    takes_long: ClassVar[bool] = True
    calls: Sequence[Call]
    case: Case

    def perform_at(self, state: State) -> Iterator[Answer]:
        how = binding.binding(state.file, self.case, state.order)
        results = f"{state.scratch}/results"
        for call in self.calls:
            Path(results).unlink(missing_ok=True)
            with _hidden(is_used=state.file.imports_losscli) as main:
                # A forking thread, with its frames, is its child's only one.
                operands, given = [*call.operands.values()], call.grad_output if call.wrt else None
                arguments = (state.source, main.Binding(*how), operands, given, results)
                thread = threading.Thread(target=main.main, args=arguments)
                thread.start()
                thread.join()
            if not os.path.exists(results):
                raise SubjectError("ended its process")
            found = torch.load(results)
            if isinstance(found, str):
                raise SubjectError(found)
            yield Answer(found[0], dict(zip(call.wrt, found[1:], strict=True)))

    def accepts(self, response: Iterable[Answer]) -> bool:
        return accept_each(self.calls, [*response])


class Leftovers(WorkerRequest[list[str]], frozen=True):
    """The names of processes that the candidate left running."""

    def perform_at(self, state: State) -> list[str]:
        own = os.getpid()
        if own == 1 and os.readlink("/proc/self") == "1":  # it shows those of the namespace alone
            pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        else:
            pids = children(own) + children(os.getppid())  # orphans belong to the keeper
        left = [name for pid in pids if pid != own and (name := _name_of(pid))]
        return left or (["a thread that goes on computing"] if goes_on_computing() else [])


class ModelArguments(WorkerRequest[list[Argument]], frozen=True):
    """Descriptions of the arguments from ``get_inputs``."""

    def perform_at(self, state: State) -> list[Argument]:
        return arguments_of(state.module)


class ModelState(WorkerRequest[tuple[dict[str, Tensor], list[str]]], frozen=True):
    """The module's parameters and buffers, and the names of those with gradients."""

    takes_long: ClassVar[bool] = True
    seed: int

    def perform_at(self, state: State) -> tuple[dict[str, Tensor], list[str]]:
        made = make(state.module, state.file.definition(""), state.device, self.seed)
        if not isinstance(made, nn.Module):
            return {}, []
        trained = [name for name, each in made.named_parameters() if each.requires_grad]
        return dict(made.state_dict()), trained


@contextmanager
def _hidden(*, is_used: bool) -> Iterator[Any]:
    """Hide losscli behind a plain main module; ``is_used``: the file imports losscli."""
    prefix = "losscli.implementations" if is_used else "losscli"
    hidden = {n: sys.modules.pop(n) for n in [*sys.modules] if f"{n}.".startswith(f"{prefix}.")}
    main = sys.modules["__main__"] = ModuleType("__main__")
    exec(compile(Path(program.__file__).read_text(), "main.py", "exec"), main.__dict__)
    gc.freeze()
    try:
        yield main
    finally:
        sys.modules.update(hidden)


def goes_on_computing() -> bool:
    """Tell whether threads compute for a full second while this one sleeps."""
    for _ in range(WATCHES):
        before = _wanted_seconds()
        time.sleep(WATCHED_SECONDS)
        if _wanted_seconds() - before < WATCHED_SECONDS / 2:
            return False
    return True


def _wanted_seconds() -> float:
    """Return how long threads ran or, if schedstat is known, waited for a core."""
    if not Path("/proc/self/schedstat").exists():
        return time.process_time()
    nanoseconds = 0
    for thread in os.listdir("/proc/self/task"):
        with suppress(OSError):  # it has ended meanwhile
            computed, waited, _ = Path(f"/proc/self/task/{thread}/schedstat").read_text().split()
            nanoseconds += int(computed) + int(waited)
    return nanoseconds / 1e9


def _name_of(pid: int) -> str:
    """Return a process's name or number; empty if it has ended."""
    with suppress(OSError):
        known, _, state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
        if state.split()[0] != "Z":
            return known.partition("(")[2].strip() or str(pid)
    return ""
