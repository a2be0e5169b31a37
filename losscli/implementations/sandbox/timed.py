"""Times a candidate in its worker, checked by the judge's clock.

The judge chooses rows to flip before each sample, and only afterwards the answer that it checks. So
an answer is right only if it was computed for its sample.
"""

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated

import msgspec
import torch
from torch import Tensor

from losscli.cases.axes import FORWARD_BACKWARD, PassName
from losscli.cases.model_case import ModelCase
from losscli.implementations.local import LocalSubject, Operands, plain
from losscli.implementations.passes import Pass, PassFactory, gradients
from losscli.implementations.requests import toggle
from losscli.implementations.sandbox.modules import BoundModel
from losscli.implementations.sandbox.owners import Ran, ran
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

    def first(self) -> Samples:
        """Return the result of one call."""
        with gradients(self.pass_):
            return self._answer([])

    def warm_up(self) -> WarmData:
        """Warm up and measure a call's memory."""
        with gradients(self.pass_):
            self.warm = replace(self.timer.warm_up(self.call), repeats=1)
            self._drop_gradients()
            extra = self.call.peak_extra_bytes(self.device)
            if extra is not None:
                extra = max(extra - self._drop_gradients(), 0)
        return WarmData(self.warm.host_seconds, extra)

    def samples(self, flips: Sequence[Flip], keep: int) -> Samples:
        """Take a sample after each flip, and keep the answer of one."""
        assert self.warm is not None
        self.flips, self.flipped = flips, 0
        queue = [replace(self.warm, before=partial(self._reach, n)) for n in range(len(flips))]
        found = Samples([], None, [], 1.0)
        with gradients(self.pass_):
            seconds = self.timer.measure(queue[: keep + 1])
            if keep >= 0:
                found = self._answer(seconds)
            seconds += self.timer.measure(queue[keep + 1 :])
        found.seconds = seconds
        return found

    def looped(self, calls: int) -> float:
        """Call repeatedly and wait for all that was started; return the seconds."""
        start = time.perf_counter_ns()
        with gradients(self.pass_):
            for _ in range(calls):
                self.call()
            if self.device != "cpu":
                torch.cuda.synchronize(self.device)
            for thread in set(threading.enumerate()) - self.threads:
                thread.join(JOIN_SECONDS)
        return (time.perf_counter_ns() - start) * 1e-9

    def ran(self) -> Ran:
        """Return what runs in a call."""
        with gradients(self.pass_):
            self.call.prepare()
            return ran(self.call, self.device)

    def _reach(self, number: int) -> None:
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
        self._drop_gradients()
        self.call.prepare()

    def _drop_gradients(self) -> int:
        count = 0
        for leaf in self.leaves:
            count += 0 if leaf.grad is None else leaf.grad.nbytes
            leaf.grad = None
        return count

    def _answer(self, seconds: list[float]) -> Samples:
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
