"""Times a candidate in its worker, checked by the judge's clock.

The judge chooses rows to flip before each sample, and only afterwards the answer that it checks. So
an answer is right only if it was computed for its sample.
"""

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, ClassVar

import msgspec
import torch
from torch import Tensor

from losscli.cases.axes import FORWARD_BACKWARD, PassName
from losscli.cases.model_case import ModelCase
from losscli.implementations.local import LocalSubject, Operands, R_co, plain
from losscli.implementations.passes import Pass, PassFactory, gradients
from losscli.implementations.requests import toggle
from losscli.implementations.sandbox.modules import BoundModel
from losscli.implementations.sandbox.owners import ATEN, CUBLAS, OWN, TRITON, Ran, ran
from losscli.implementations.sandbox.worker_requests import Seconds, State, WorkerRequest
from losscli.implementations.timer import Timer, Warm, make_timer

JOIN_SECONDS = 10.0
"""How long a thread that a call started may continue."""


class Flip(msgspec.Struct):
    """Toggles the prediction's rows from start to stop before a sample."""

    start: int
    stop: int


class WarmData(msgspec.Struct):
    """Measurements of a warm-up."""

    host_seconds: float
    peak_extra_bytes: int | None = None


class Samples(msgspec.Struct):
    """The seconds of samples, and one answer."""

    seconds: list[Annotated[float, msgspec.Meta(gt=0)]]
    loss: Tensor | None
    gradients: list[Tensor | None]
    incoming: float


class TimedPass:
    """A candidate's pass, with the worker's timer."""

    def __init__(
        self,
        subject: LocalSubject,
        pass_: PassName,
        given: Operands,
        *,
        evicts: bool,
        captured: bool,
    ) -> None:
        case = subject.case
        self.case, self.device, self.pass_ = case, case.device, pass_
        operands = tuple(given.values())
        self.prediction = operands[0]
        self.leaves: list[Tensor] = []
        """A Model's other differentiable tensors."""
        if isinstance(case, ModelCase):
            # As a user calls it: with its own parameters, for the gradients of all arguments.
            subject = subject.again()
            model = subject.function
            assert isinstance(model, BoundModel)
            self.leaves = model.hold(given)
            wanted = {a.name for a in case.arguments if a.differentiable}
            operands = tuple(
                each.detach().requires_grad_(name in wanted and pass_ == FORWARD_BACKWARD)
                for name, each in given.items()
            )
            self.leaves += [each for each in operands[1:] if each.requires_grad]
        passes = PassFactory(case, pass_, operands)
        with gradients(pass_):
            self.call: Pass = subject.repeated(passes, captured=captured)
        self.timer: Timer = make_timer(case.device, evicts)
        self.threads = set(threading.enumerate())
        self.warm: Warm | None = None
        self.flips: Sequence[Flip] = ()

    def reach(self, number: int) -> None:
        """Apply flips up to a number and undo later ones; a GPU timer may repeat a batch."""
        while self.flipped <= number:
            self._flip(self.flips[self.flipped])
            self.flipped += 1
        while self.flipped > number + 1:
            self.flipped -= 1
            self._flip(self.flips[self.flipped])

    def _flip(self, flip: Flip) -> None:
        with torch.no_grad():
            whole = self.prediction
            rows = whole[flip.start : flip.stop] if whole.dim() else whole
            toggle(rows, self.case)
        self.drop_gradients()
        self.call.prepare()

    def drop_gradients(self) -> int:
        """Drop gradients; return their bytes."""
        count = 0
        for leaf in self.leaves:
            count += 0 if leaf.grad is None else leaf.grad.nbytes
            leaf.grad = None
        return count

    def answer(self, seconds: list[float]) -> Samples:
        """Return the last loss, and the gradients of another call with the same contents."""
        loss = self.call.loss.clone() if seconds and self.call.loss is not None else None
        gradients: list[Tensor | None] = []
        incoming = 1.0
        if loss is None or self.pass_ == FORWARD_BACKWARD:
            self.call.compute()
            gradients, incoming = list(self.call.gradients), self.call.incoming
            loss = self.call.loss if loss is None else loss
        found = Samples(seconds, plain(loss).detach().clone(), gradients, incoming)
        self.call.release()
        return found


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
        with gradients(self.pass_):
            return state.timed.answer([])

    def accepts(self, response: Samples) -> bool:
        return response.loss is not None


class TimedRequest(WorkerRequest[R_co], frozen=True):
    """A request to the timed pass."""

    def perform_at(self, state: State) -> R_co:
        with gradients(state.timed.pass_):
            return self.perform_on(state.timed)

    def perform_on(self, timed: TimedPass) -> R_co:
        """Perform it in the pass's grad mode."""
        raise NotImplementedError


class WarmUp(TimedRequest[WarmData], frozen=True):
    """Warm up, and measure a call's memory."""

    def perform_on(self, timed: TimedPass) -> WarmData:
        timed.warm = replace(timed.timer.warm_up(timed.call), repeats=1)
        timed.drop_gradients()
        extra = timed.call.peak_extra_bytes(timed.device)
        if extra is not None:
            extra = max(extra - timed.drop_gradients(), 0)
        return WarmData(timed.warm.host_seconds, extra)


class Sample(TimedRequest[Samples], frozen=True):
    """Take a sample after each flip; return the answer of sample ``keep``, or none for -1."""

    is_timed: ClassVar[bool] = True
    flips: Sequence[Flip]
    keep: int

    def perform_on(self, timed: TimedPass) -> Samples:
        assert timed.warm is not None
        timed.flips, timed.flipped = self.flips, 0
        queue = [
            replace(timed.warm, before=partial(timed.reach, n)) for n in range(len(self.flips))
        ]
        found = Samples([], None, [], 1.0)
        seconds = timed.timer.measure(queue[: self.keep + 1])
        if self.keep >= 0:
            found = timed.answer(seconds)
        found.seconds = seconds + timed.timer.measure(queue[self.keep + 1 :])
        return found

    def accepts(self, response: Samples) -> bool:
        one_each = len(response.seconds) == len(self.flips)
        return one_each and (self.keep < 0 or response.loss is not None)


class WhatRan(TimedRequest[Ran], frozen=True):
    """The operators and kernels in a call, and their owners."""

    def perform_on(self, timed: TimedPass) -> Ran:
        timed.call.prepare()
        return ran(timed.call, timed.device)

    def accepts(self, response: Ran) -> bool:
        shares = response.shares
        known = {*shares} <= {OWN, TRITON, CUBLAS, ATEN}
        return known and response.count >= 0 and all(0 <= each <= 1 for each in shares.values())


class Loop(TimedRequest[Seconds], frozen=True):
    """Call repeatedly and wait for all that was started; return the seconds."""

    is_timed: ClassVar[bool] = True
    calls: int

    def perform_on(self, timed: TimedPass) -> float:
        start = time.perf_counter_ns()
        for _ in range(self.calls):
            timed.call()
        if timed.device != "cpu":
            torch.cuda.synchronize(timed.device)
        for thread in set(threading.enumerate()) - timed.threads:
            thread.join(JOIN_SECONDS)
        return (time.perf_counter_ns() - start) * 1e-9
