"""A pass that another process computes, whose samples are interleaved with this process's."""

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

import torch

from losscli.bench.passes import Contents, JudgedPass
from losscli.cases.axes import GRAPH, PassName
from losscli.implementations.process_state import reason_of
from losscli.implementations.requests import toggle
from losscli.implementations.sandbox.timed_requests import Flip, Loop, Sample, Samples, Time, WarmUp
from losscli.implementations.subject import RemoteSubject, changes_of
from losscli.implementations.timer import Call, Timer, Warm, sampling
from losscli.reasons import Code, Reason
from losscli.runs.records import FAIL, VerifyResult
from losscli.truth.gate import Gate

LOOP_SECONDS = 0.05
LOOPS = 3
SHORT_LOOP_SECONDS = 0.005
SHORT_LOOPS = 100
"""Short loops follow where long ones take too long: on a busy machine another program disturbs
every long loop, but not every short one. More long ones follow where the clocks differ."""
PATIENCE_SECONDS = 3.0
"""The time after which no more loops begin."""
LARGEST_LOOP = 200
LARGEST_GPU_LOOP = 20_000
"""Calls of a loop; on a GPU as many as fill its time."""
CLOCK_TOLERANCE = {"cpu": 3.0, "cuda": 1.5}
"""The largest ratio of a looped call's time to its samples': other programs disturb a CPU, and the
host's part of a GPU's call."""
CLOCK_SLACK = {"cpu": 10e-6, "cuda": 200e-6}
"""Seconds of a call that are always allowed."""
SAME_LOOP_TOLERANCE = 1.5
"""The largest ratio of a loop's time by the judge's clock to that by its process's."""
SAME_LOOP_SLACK = 2e-3
"""Seconds by which the responses to two loops may differ."""
LONG_RUN_SECONDS = 0.02
LONG_RUN_TOLERANCE = 1.1
"""The largest ratio on a GPU in runs of LONG_RUN_SECONDS. The slack of a request is 1 % of such a
run. Between two launches lies a microsecond, 5 % of a kernel of 20 us, and shorter ones are bound
by the host. In long runs a GPU's clocks fall by a few percent."""


class RemotePass(JudgedPass):
    """A candidate's pass in its worker: contents change before each sample, some are judged."""

    def __init__(
        self, subject: RemoteSubject, pass_: PassName, contents: Contents, *, evicts: bool
    ) -> None:
        super().__init__(subject.name, pass_, self, contents)
        self.subject, self.case = subject, subject.case
        self.evicts, self.captured = evicts, contents.task.mode == GRAPH
        self.own = contents.prediction.clone()
        self.operands = {**contents.operands, next(iter(contents.operands)): self.own}
        self.wrong: VerifyResult | None = None
        self._random = random.SystemRandom()
        self._judge_next = True

    def __call__(self) -> Samples:
        return self.subject.send(Time(self.pass_, self.operands, self.evicts, self.captured))

    def first(self) -> VerifyResult:
        return self._judged(self.contents.gate, self())

    def warm_up(self, timer: Timer) -> None:
        """Warm up the worker, and forget earlier changes in its process."""
        changes_of(self.subject.implementation.file)
        if warm := self.run(partial(self.subject.send, WarmUp())):
            host_seconds, self.peak_extra_bytes = warm
            self.warm = Warm(self, 1, host_seconds, name=self.name)

    def take(self, count: int) -> list[float]:
        """Take samples; the result of one of them may be judged."""
        flips = [self._flip() for _ in range(count)]
        every = 10 if self.case.elements <= 2**18 else 30  # a judgement of a large case takes long
        judged = self._judge_next or self._random.randrange(every) == 0
        self._judge_next = False
        keep = self._random.randrange(count) if judged else -1
        found = self.subject.send(Sample(flips, keep))
        for number, flip in enumerate(flips):
            rows = self.own[flip.start : flip.stop] if self.own.dim() else self.own
            toggle(rows, self.case)
            if number == keep:
                verdict = self._judged(self.contents.gate_of(self.operands), found)
                if verdict.status == FAIL and self.wrong is None:
                    self.wrong = verdict
        return found.seconds

    def disagreement(self, seconds: float, host_seconds: float) -> Reason | None:
        """Return a global change that samples left, or how the judge's clock differs."""
        if changed := changes_of(self.subject.implementation.file):
            return reason_of(changed)
        kind = self.case.device.partition(":")[0]
        return disagreement(self.looped, kind, seconds, host_seconds)

    def looped(self, calls: int) -> float:
        return self.subject.send(Loop(calls))

    def last(self) -> VerifyResult | None:
        """Judge one more sample; return the first wrong result."""
        if self.wrong is None:
            self._judge_next = True
            self.take(1)
        return self.wrong

    def _flip(self) -> Flip:
        """Choose rows of the prediction to negate or reverse: few bytes, which warm no cache."""
        if not self.own.dim() or not self.own.numel():
            return Flip(0, 1)
        rows = self.own.shape[0]
        row_bytes = max(self.own.nbytes // rows, 1)
        most = max(1, min(rows // 4, 2**16 // row_bytes))
        start = self._random.randrange(rows)
        return Flip(start, min(rows, start + self._random.randint(1, most)))

    def _judged(self, gate: Gate, found: Samples) -> VerifyResult:
        incoming, gradients = found.incoming, found.gradients
        return gate.judge(self.name, self.pass_, found.loss, *gradients, incoming=incoming)


def disagreement(
    looped: Callable[[int], float],
    kind: str,
    seconds: float,
    host_seconds: float,
    clock: Callable[[], float] = time.perf_counter,
) -> Reason | None:
    """Return how the judge's clock disagrees with a median of samples, or None.

    ``looped`` makes so many calls, waits for them, and returns their seconds by the clock of the
    samples. A loop of calls finds warm caches and queues its work, so a call takes no longer than
    the device or the host, whichever is slower.
    """
    due = max(seconds, host_seconds)
    began, idle, least = clock(), math.inf, math.inf
    compared: list[tuple[float, float, float]] = []  # of long loops: the ratio, and both times

    def differing() -> list[tuple[float, float, float]]:
        """Return loops whose clocks differ; none if one in three agrees: other programs delay."""
        slowed = [each for each in compared if each[0] > SAME_LOOP_TOLERANCE]
        return slowed if (len(compared) - len(slowed)) * 3 < len(compared) else []

    for number in range(LOOPS + SHORT_LOOPS):
        if number >= LOOPS and clock() - began > PATIENCE_SECONDS:
            break
        long = number < LOOPS or bool(differing())
        loop_seconds = LOOP_SECONDS if long or kind != "cpu" else SHORT_LOOP_SECONDS
        calls = min(int(loop_seconds / max(seconds, 1e-9)), LARGEST_LOOP)
        if number and kind != "cpu":
            calls = min(int(loop_seconds / max(due, least)), LARGEST_GPU_LOOP)
        calls = max(1, calls)
        start = clock()
        looped(0)
        between = clock()
        told = looped(calls)
        idle = min(idle, between - start)
        run_seconds = clock() - between - idle
        least = min(least, run_seconds / calls)
        if long:
            by = (run_seconds - SAME_LOOP_SLACK) / max(told, 1e-9)
            compared.append((by, told, run_seconds))
        allowed = CLOCK_TOLERANCE[kind] * due + CLOCK_SLACK[kind]
        if kind != "cpu" and run_seconds >= LONG_RUN_SECONDS:
            allowed = max(LONG_RUN_TOLERANCE * seconds, CLOCK_TOLERANCE[kind] * host_seconds)
            allowed += CLOCK_SLACK[kind] / calls
        # On a CPU no further loop could change the result; on a GPU longer ones have less slack.
        enough = kind == "cpu" or number >= LOOPS - 1
        if enough and least <= allowed and not differing():
            return None
    if slowed := differing():
        _, told, run_seconds = min(slowed)
        text = f"its process's clock says {told:.2g} s where the judge's says {run_seconds:.2g} s"
    else:
        text = f"the judge's clock says {least * 1e6:.0f} us a call, its samples {due * 1e6:.0f} us"
    return Reason(Code.TIMING_TAMPERING, text)


@dataclass(frozen=True)
class SharedTimer:
    """Times passes of this process and of others; equal for the same timer."""

    timer: Timer
    device: str

    @property
    def gaps(self) -> int:
        return self.timer.gaps

    def warm_up(self, call: Call) -> Warm:
        return self.timer.warm_up(call)

    def measure(self, queue: Sequence[Warm]) -> list[float]:
        """Take samples; on a GPU one process takes all of its own together."""
        processes = [id(w.call) if isinstance(w.call, RemotePass) else 0 for w in queue]
        order: Sequence[int] = range(len(queue))
        if self.device != "cpu":
            order = sorted(order, key=lambda place: processes.index(processes[place]))
        found: dict[int, float] = {}
        for _, group in groupby(order, key=lambda place: processes[place]):
            places = [*group]
            found |= zip(places, self._measure([queue[n] for n in places]), strict=True)
        return [found[place] for place in range(len(queue))]

    def _measure(self, group: Sequence[Warm]) -> list[float]:
        remote = group[0].call
        if not isinstance(remote, RemotePass):
            return self.timer.measure(group)
        if self.device == "cpu":
            time.sleep(0.002)  # after which torch's threads in this process sleep
        else:
            torch.cuda.synchronize(self.device)
        with sampling(group[0]):
            return remote.take(len(group))
