"""How bench measures an implementation in one pass: judge, time, judge again."""

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from losscli.bench.plan import Task
from losscli.bench.sampling import Contender
from losscli.cases.axes import FORWARD, FORWARD_BACKWARD, PassName
from losscli.implementations.local import Operands
from losscli.implementations.passes import Pass
from losscli.implementations.requests import toggle
from losscli.implementations.timer import Call, Timer
from losscli.ranks.group import Group, together
from losscli.reasons import Code, Reason
from losscli.runs.measurements import Error
from losscli.runs.records import FAIL, VerifyResult
from losscli.truth.blocks import blocks
from losscli.truth.fingerprint import fingerprint
from losscli.truth.gate import Gate

DOUBLED = -2.0
"""The factor of the contents: it changes every loss and gradient, and can be undone exactly."""
DOUBLED_WITHIN = 2.0
"""The factor of values of one sign, such as log-probabilities, which keeps their domain."""
TURNED = -1.0
LARGEST_DOUBLED = 64.0
"""The largest value to double: the square of twice that plus 64 is finite in float16."""


class Contents:
    """The operands of a case, and their gates.

    An implementation that caches a result by the operands' address or object is fast and wrong. So
    the prediction changes before each batch of samples, untimed, and back before the next.
    """

    def __init__(self, task: Task, operands: Operands) -> None:
        self.task, self.case, self.operands = task, task.case, operands
        self.right = dict(task.right)
        self.group = Group()
        self.changed = False
        self._gates: dict[bool, Gate] = {}
        input = self.prediction = next(iter(operands.values()))
        ends = [float(x) for x in torch.aminmax(input)] if input.numel() else [0.0]
        small = max(map(abs, ends)) <= LARGEST_DOUBLED
        domain = self.case.spec.operands[0].domain
        self._first = input[(slice(1),) * input.dim()]
        doubles = small and all(domain.holds(DOUBLED_WITHIN * end) for end in ends)
        self._reverses = not domain.is_real and not doubles
        self._factor = DOUBLED_WITHIN if not domain.is_real else DOUBLED if small else TURNED

    @property
    def timed(self) -> tuple[Tensor, ...]:
        return tuple(self.operands.values())

    @property
    def read(self) -> tuple[Tensor, ...]:
        """The operands that the limit's probe reads."""
        return self.timed

    @property
    def gate(self) -> Gate:
        if self.changed not in self._gates:
            self._gates[self.changed] = self.gate_of(self.operands)
        return self._gates[self.changed]

    def gate_of(self, operands: Operands) -> Gate:
        """Return the gate for other operands of the case."""
        return Gate(self.case, operands, self.task.loosened, self.task.reference)

    def judge(
        self, name: str, pass_: PassName, *results: Tensor | None, incoming: float = 1.0
    ) -> VerifyResult:
        """Judge as :meth:`Gate.judge` does, once for the same bits on the same contents."""
        key = (name, pass_, self.changed, incoming, *map(_bits, results))
        if key not in self.right:
            verdict = self.gate.judge(name, pass_, *results, incoming=incoming)
            if verdict.status == FAIL:
                return verdict
            self.right[key] = verdict
        return self.right[key]

    def change(self) -> None:
        """Switch to the other contents."""
        if self._reverses:
            for block in blocks(self.prediction.shape):
                toggle(self.prediction[block], self.case)
        else:
            self.prediction.mul_(1 / self._factor if self.changed else self._factor)
        if self.prediction.device.type == "cpu":
            self.prediction.sum()  # the cache writes back now, not during the next sample
        self.changed = not self.changed

    def touch(self) -> None:
        """Write one element with its own value, which raises PyTorch's version counter."""
        self._first.mul_(1)


def _bits(result: Tensor | None) -> tuple[object, ...] | None:
    if result is None:
        return None
    return tuple(result.shape), str(result.dtype), str(result.device), fingerprint(result)


class JudgedPass(Contender):
    """An implementation in one pass, judged before and after it is timed."""

    error = Error()
    code = Code.NONE
    peak_extra_bytes: int | None = None

    def __init__(self, name: str, pass_: PassName, call: Call, contents: Contents) -> None:
        super().__init__(name, call)
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
