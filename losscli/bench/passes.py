"""What bench does with a pass of this process: judge it, time it, judge it again."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch

from losscli.bench.contents import Contents
from losscli.cases.axes import FORWARD, FORWARD_BACKWARD, PassName
from losscli.implementations.passes import Pass
from losscli.ranks.group import together
from losscli.reasons import Reason
from losscli.runs.records import FAIL, VerifyResult


@dataclass
class LocalPass:
    """A pass of this process; :class:`~losscli.bench.remote.RemotePass` is one of another."""

    name: str
    pass_: PassName
    call: Pass
    """What is timed."""
    contents: Contents
    device: str
    peak_extra_bytes: int | None = None
    """The memory that a call takes beyond inputs, loss and gradient; None where it is unknown."""

    def first(self) -> VerifyResult:
        """Call once, as it will be timed, and judge the result."""
        verdict = self._judge()
        self.call.release()
        return verdict

    def measure_memory(self) -> None:
        """Call once more to measure its memory."""
        measure = partial(self.call.peak_extra_bytes, self.device)
        self.peak_extra_bytes = together(self.contents.group, measure)

    def prepare(self) -> None:
        """Do what has to be done before a sample, outside its time."""
        self.call.prepare()

    def last(self) -> VerifyResult:
        """Judge the loss of the last call that was timed, and gradients of the same contents.

        The gradients are those of one more call, because a timed call frees its own.
        """
        verdict = self.contents.judge(self.name, FORWARD, self.call.loss)
        if verdict.status != FAIL and self.pass_ == FORWARD_BACKWARD:
            verdict = self._judge()
        self.call.release()
        return verdict

    def disagreement(self, seconds: float, host_seconds: float) -> Reason | None:
        """Return nothing: the clock is this process's own."""
        return None

    def looped(self, calls: int) -> None:
        """Call so often, and wait for the device."""
        for _ in range(calls):
            self.call()
        if self.device != "cpu":
            torch.cuda.synchronize(self.device)

    def _judge(self) -> VerifyResult:
        """Judge one more call."""
        call = self.call
        together(self.contents.group, call.compute)
        judge, gradients = self.contents.judge, call.gradients
        return judge(self.name, self.pass_, call.loss, *gradients, incoming=call.incoming)
