"""Requests to a worker itself, not to its bound implementation."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, ClassVar

import torch
from msgspec import Meta
from torch import Tensor

from losscli.cases.axes import PassName
from losscli.cases.case import Case
from losscli.cases.model_case import Argument
from losscli.implementations.local import Operands, R_co
from losscli.implementations.process_state import ProcessState, StateChange
from losscli.implementations.requests import Answer, Call, Request, accept_each
from losscli.implementations.sandbox import builds, leftovers, unmarked
from losscli.implementations.sandbox.modules import arguments_of, make, state_of
from losscli.implementations.sandbox.owners import ATEN, CUBLAS, OWN, TRITON, Ran
from losscli.implementations.sandbox.state import State
from losscli.implementations.sandbox.timed import Flip, Samples, TimedPass, WarmData
from losscli.implementations.source import Source
from losscli.losses import Shape

_Seconds = Annotated[float, Meta(ge=0)]
_NAMES_BYTES = 2**20
"""Of compiled files."""


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
    """The order of operands; empty to infer it."""
    unmarked: bool
    """Whether to import it later, in a process that looks like a user's."""
    built: Tensor
    """An earlier worker's compiled output."""

    def perform_at(self, state: State) -> None:
        state.load(self.file, self.order, self.built, unmarked=self.unmarked)


class TuningSeconds(WorkerRequest[_Seconds], frozen=True):
    """Total seconds of tuning so far."""

    def perform_at(self, state: State) -> float:
        return state.tuning.seconds


class Compiled(WorkerRequest[Tensor], frozen=True):
    """The packed compiled output so far."""

    takes_long: ClassVar[bool] = True

    def perform_at(self, state: State) -> Tensor:
        packed = builds.pack(state.scratch)
        return torch.frombuffer(packed, dtype=torch.uint8) if packed else torch.empty(0).byte()

    def accepts(self, response: Tensor) -> bool:
        fits = response.dim() == 1 and response.nbytes <= builds.MOST_BYTES + _NAMES_BYTES
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
        return [
            (tuple(each.shape), str(each.dtype).removeprefix("torch."))
            for each in given
            if isinstance(each, Tensor)
        ]


class Unmarked(WorkerRequest[Iterable[Answer]], frozen=True):
    """The answers of processes that look like a user's."""

    takes_long: ClassVar[bool] = True
    calls: Sequence[Call]
    case: Case

    def perform_at(self, state: State) -> Iterator[Answer]:
        return unmarked.answers(state.file, state.source, state.binding(self.case), self.calls)

    def accepts(self, response: Iterable[Answer]) -> bool:
        return accept_each(self.calls, [*response])


class Leftovers(WorkerRequest[list[str]], frozen=True):
    """The names of processes that the candidate left running."""

    def perform_at(self, state: State) -> list[str]:
        return leftovers.find()


class ModelArguments(WorkerRequest[list[Argument]], frozen=True):
    """Descriptions of the arguments from ``get_inputs``."""

    def perform_at(self, state: State) -> list[Argument]:
        assert state.module is not None
        return arguments_of(state.module)


class ModelState(WorkerRequest[tuple[dict[str, Tensor], list[str]]], frozen=True):
    """The module's parameters and buffers, and the names of those with gradients."""

    takes_long: ClassVar[bool] = True
    seed: int

    def perform_at(self, state: State) -> tuple[dict[str, Tensor], list[str]]:
        assert state.module is not None
        return state_of(make(state.module, state.file.definition(""), state.device, self.seed))


class Time(WorkerRequest[Samples], frozen=True):
    """Make the timed pass of later requests; return its first result."""

    takes_long: ClassVar[bool] = True
    keeps_operands: ClassVar[bool] = True
    owns_operands: ClassVar[bool] = True
    pass_: PassName
    operands: Operands
    evicts: bool
    captured: bool

    def perform_at(self, state: State) -> Samples:
        assert state.local is not None
        state.timed = TimedPass(
            state.local, self.pass_, self.operands, evicts=self.evicts, captured=self.captured
        )
        return state.timed.first()

    def accepts(self, response: Samples) -> bool:
        return response.loss is not None


class WarmUp(WorkerRequest[WarmData], frozen=True):
    """Warm up the timed pass and measure a call's memory."""

    def perform_at(self, state: State) -> WarmData:
        return state.timed.warm_up()


class Sample(WorkerRequest[Samples], frozen=True):
    """Take a sample after each flip; return the answer of sample ``keep``, or none for -1."""

    is_timed: ClassVar[bool] = True
    flips: Sequence[Flip]
    keep: int

    def perform_at(self, state: State) -> Samples:
        return state.timed.samples(self.flips, self.keep)

    def accepts(self, response: Samples) -> bool:
        one_each = len(response.seconds) == len(self.flips)
        return one_each and (self.keep < 0 or response.loss is not None)


class WhatRan(WorkerRequest[Ran], frozen=True):
    """The operators and kernels in a call of the timed pass, and their owners."""

    def perform_at(self, state: State) -> Ran:
        return state.timed.ran()

    def accepts(self, response: Ran) -> bool:
        shares = response.shares
        known = {*shares} <= {OWN, TRITON, CUBLAS, ATEN}
        return known and response.count >= 0 and all(0 <= each <= 1 for each in shares.values())


class Loop(WorkerRequest[_Seconds], frozen=True):
    """Call the timed pass repeatedly and wait for all its work; return the seconds."""

    is_timed: ClassVar[bool] = True
    calls: int

    def perform_at(self, state: State) -> float:
        return state.timed.looped(self.calls)
