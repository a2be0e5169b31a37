"""What bench does with an implementation in one pass: judge, time, judge again."""

from dataclasses import replace
from functools import partial

import torch

from losscli.bench.contents import Contents
from losscli.bench.sampling import Contender
from losscli.cases.axes import FORWARD, FORWARD_BACKWARD, PassName
from losscli.implementations.passes import Pass
from losscli.implementations.timer import Call, Timer
from losscli.ranks.group import together
from losscli.reasons import Code, Reason
from losscli.runs.measurements import Error
from losscli.runs.records import FAIL, VerifyResult


class JudgedPass(Contender):
    """An implementation in one pass, judged before and after it is timed."""

    error = Error()
    code = Code.NONE
    peak_extra_bytes: int | None = None

    def __init__(self, name: str, pass_: PassName, call: Call | None, contents: Contents) -> None:
        """``call`` is what is timed; None for the object itself."""
        super().__init__(name, call or self)  # type: ignore[arg-type]
        self.pass_, self.contents = pass_, contents

    def measure_memory(self) -> None:
        """Call once more to measure memory; a worker measures while it warms up."""

    def disagreement(self, seconds: float, host_seconds: float) -> Reason | None:
        """Return why the times are not trusted; those of this process's clock are."""
        return None


class LocalPass(JudgedPass):
    """A pass in this process; :class:`~losscli.bench.remote.RemotePass` is one in another."""

    def __init__(self, name: str, pass_: PassName, timed: Pass, contents: Contents) -> None:
        super().__init__(name, pass_, timed, contents)
        self.timed, self.device = timed, contents.case.device

    def first(self) -> VerifyResult:
        """Call once, as it will be timed, and judge the result."""
        verdict = self._judge()
        self.timed.release()
        return verdict

    def warm_up(self, timer: Timer) -> None:
        """Warm up; the contents are touched before each sample, untimed."""
        super().warm_up(timer)

        def before() -> None:
            self.contents.touch()
            self.timed.prepare()

        self.warm = self.warm and replace(self.warm, before=before)

    def measure_memory(self) -> None:
        measure = partial(self.timed.peak_extra_bytes, self.device)
        self.peak_extra_bytes = together(self.contents.group, measure)

    def last(self) -> VerifyResult:
        """Judge the last timed loss, and the gradients of another call: timed ones are freed."""
        verdict = self.contents.judge(self.name, FORWARD, self.timed.loss)
        if verdict.status != FAIL and self.pass_ == FORWARD_BACKWARD:
            verdict = self._judge()
        self.timed.release()
        return verdict

    def looped(self, calls: int) -> None:
        """Call ``calls`` times and wait for the device."""
        for _ in range(calls):
            self.timed()
        if self.device != "cpu":
            torch.cuda.synchronize(self.device)

    def close(self) -> None:
        super().close()
        del self.timed, self.contents

    def _judge(self) -> VerifyResult:
        call = self.timed
        together(self.contents.group, call.compute)
        results, incoming = (call.loss, *call.gradients), call.incoming
        return self.contents.judge(self.name, self.pass_, *results, incoming=incoming)
