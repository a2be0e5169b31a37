"""Times a candidate in its worker, checked by the judge's clock.

The judge chooses rows to flip before each sample, and only afterwards the answer that it checks. So
an answer is right only if it was computed for its sample.
"""

import re
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, ClassVar, cast

import msgspec
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from losscli.cases.axes import FORWARD_BACKWARD, PassName
from losscli.cases.model_case import ModelCase
from losscli.implementations.local import LocalSubject, Operands, R_co, leaves_of, plain
from losscli.implementations.passes import Pass, PassFactory, gradients
from losscli.implementations.requests import toggle
from losscli.implementations.sandbox.modules import BoundModel
from losscli.implementations.sandbox.worker_requests import Seconds, State, WorkerRequest
from losscli.implementations.timer import Timer, Warm, make_timer

Ran = tuple[int, dict[str, float]]
"""The number of operators or kernels, and each owner's share of the time."""
JOIN_SECONDS = 10.0
"""How long a thread that a call started may continue."""
_PROFILED_CALLS = 5
OWN, TRITON, CUBLAS, ATEN = "its own", "Triton", "cuBLAS", "PyTorch"
_OWNERS = (
    (CUBLAS, re.compile("gemm|cublas|cutlass|xmma|cudnn", re.IGNORECASE)),
    (TRITON, re.compile("^triton_|^_?[a-z0-9_]*kernel[a-z0-9_]*$")),
    (ATEN, re.compile(r"at::|c10::|^Mem(cpy|set)|^void .*at::native|cub::")),
)
"""The owners of GPU kernels by name; the first match counts."""
_NO_WORK = ("empty", "zero", "ones", "fill", "detach", "view", "as_strided", "resize", "autograd::")
"""Operators that any kernel needs to allocate and view memory."""


class Flip(msgspec.Struct):
    """Toggles the prediction's rows from start to stop before a sample."""

    start: int
    stop: int


class Samples(msgspec.Struct):
    """The seconds of samples, and one answer."""

    seconds: list[Annotated[float, msgspec.Meta(gt=0)]]
    loss: Tensor | None
    gradients: list[Tensor | None]
    incoming: float


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
        timed = state.timed = TimedPass(state.local, self)
        with gradients(self.pass_):
            return timed.answer([])

    def accepts(self, response: Samples) -> bool:
        return response.loss is not None


class TimedPass:
    """A candidate's pass, with the worker's timer."""

    def __init__(self, subject: LocalSubject, asked: Time) -> None:
        case, pass_, given = subject.case, asked.pass_, asked.operands
        self.case, self.device, self.pass_ = case, case.device, pass_
        operands = tuple(given.values())
        self.prediction = operands[0]
        self.leaves: list[Tensor] = []
        """A Model's other differentiable tensors."""
        if isinstance(case, ModelCase):
            # As a user calls it: with its own parameters, for the gradients of all arguments.
            subject = subject.again()
            self.leaves = cast(BoundModel, subject.function).hold(given)
            trains = pass_ == FORWARD_BACKWARD
            wanted = [a.name for a in case.arguments if trains and a.differentiable]
            operands = tuple(leaves_of(given, wanted).values())
            self.leaves += [each for each in operands[1:] if each.requires_grad]
        passes = PassFactory(case, pass_, operands)
        with gradients(pass_):
            self.call: Pass = subject.repeated(passes, captured=asked.captured)
        self.timer: Timer = make_timer(case.device, asked.evicts)
        self.threads = set(threading.enumerate())
        self.warm: Warm
        self.flips: Sequence[Flip] = ()
        self.flipped = 0

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
            toggle(whole[flip.start : flip.stop] if whole.dim() else whole, self.case)
        self.drop_gradients()
        self.call.prepare()

    def drop_gradients(self) -> int:
        """Drop gradients; return their bytes."""
        count = sum(leaf.grad.nbytes for leaf in self.leaves if leaf.grad is not None)
        for leaf in self.leaves:
            leaf.grad = None
        return count

    def answer(self, seconds: list[float]) -> Samples:
        """Return the last loss, and the gradients of another call with the same contents."""
        loss = self.call.loss.clone() if seconds and self.call.loss is not None else None
        if loss is None or self.pass_ == FORWARD_BACKWARD:
            self.call.compute()
            loss = self.call.loss if loss is None else loss
        gradients, incoming = list(self.call.gradients), self.call.incoming
        found = Samples(seconds, plain(loss).detach().clone(), gradients, incoming)
        self.call.release()
        return found


class TimedRequest(WorkerRequest[R_co], frozen=True):
    """A request to the timed pass."""

    def perform_at(self, state: State) -> R_co:
        with gradients(state.timed.pass_):
            return self.perform_on(state.timed)

    def perform_on(self, timed: TimedPass) -> R_co:
        """Perform it in the pass's grad mode."""
        raise NotImplementedError


class WarmUp(TimedRequest[tuple[float, int | None]], frozen=True):
    """Warm up; return a call's seconds on the host, and its peak temporary memory."""

    def perform_on(self, timed: TimedPass) -> tuple[float, int | None]:
        timed.warm = replace(timed.timer.warm_up(timed.call), repeats=1)
        timed.drop_gradients()
        extra = timed.call.peak_extra_bytes(timed.device)
        if extra is not None:
            extra = max(extra - timed.drop_gradients(), 0)
        return timed.warm.host_seconds, extra


class Sample(TimedRequest[Samples], frozen=True):
    """Take a sample after each flip; return the answer of sample ``keep``, or none for -1."""

    is_timed: ClassVar[bool] = True
    flips: Sequence[Flip]
    keep: int

    def perform_on(self, timed: TimedPass) -> Samples:
        timed.flips, timed.flipped = self.flips, 0
        steps = (partial(timed.reach, number) for number in range(len(self.flips)))
        queue = [replace(timed.warm, before=step) for step in steps]
        seconds = timed.timer.measure(queue[: self.keep + 1])
        found = timed.answer(seconds) if self.keep >= 0 else Samples([], None, [], 1.0)
        found.seconds = seconds + timed.timer.measure(queue[self.keep + 1 :])
        return found

    def accepts(self, response: Samples) -> bool:
        one_each = len(response.seconds) == len(self.flips)
        return one_each and (self.keep < 0 or response.loss is not None)


class WhatRan(TimedRequest[Ran], frozen=True):
    """The operators and kernels in a call, and their owners."""

    def perform_on(self, timed: TimedPass) -> Ran:
        timed.call.prepare()
        on_gpu = timed.device != "cpu"
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
        with profile(activities=activities) as found:
            start = time.perf_counter()
            for _ in range(_PROFILED_CALLS):
                timed.call()
            if on_gpu:
                torch.cuda.synchronize(timed.device)
            wall = time.perf_counter() - start
        return _kernels(found) if on_gpu else _operators(found, wall)

    def accepts(self, response: Ran) -> bool:
        count, shares = response
        known = {*shares} <= {OWN, TRITON, CUBLAS, ATEN}
        return known and count >= 0 and all(0 <= each <= 1 for each in shares.values())


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


def _kernels(found: profile) -> Ran:
    events = [each for each in found.events() or () if str(each.device_type).endswith("CUDA")]
    times: dict[str, float] = {}
    for event in events:
        owner = next((who for who, pattern in _OWNERS if pattern.search(event.name)), OWN)
        times[owner] = times.get(owner, 0.0) + event.device_time_total
    return _shares(len({event.name for event in events}), times)


def _operators(found: profile, wall: float) -> Ran:
    """Return operators on a CPU; time outside of PyTorch's is the kernel's own."""
    of_torch, names = 0.0, set()
    for event in found.key_averages():
        if event.key.removeprefix("aten::").startswith(_NO_WORK):
            wall -= event.self_cpu_time_total * 1e-6
        elif event.key.startswith("aten::"):
            of_torch += event.self_cpu_time_total * 1e-6
            names.add(event.key)
    return _shares(len(names), {ATEN: of_torch, OWN: max(wall - of_torch, 0.0)})


def _shares(count: int, times: dict[str, float]) -> Ran:
    total = sum(times.values())
    return count, {who: round(took / total, 4) for who, took in times.items()} if total else {}
