"""Sample implementations, interleaved, until each median is known or the time is over."""

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from losscli.bench.statistics import half_width, summarize
from losscli.config.schema import Timing
from losscli.errors import LosscliError
from losscli.implementations.timer import CallFailedError, Timer, Warm
from losscli.runs.records import Stop

Result = TypeVar("Result")

CONFIDENT_ROUNDS = 10
"""With fewer samples the interval is too often narrow by luck."""
MAXIMUM_ROUNDS = 2000
"""More rounds would only make the record long."""


@dataclass
class Contender:
    """An implementation in one pass, and its samples."""

    name: str
    call: Callable[[], object]
    warm: Warm | None = None
    samples: list[float] = field(default_factory=list)
    thrown_away: int = 0
    failure: Exception | None = None
    awaited: bool = True
    """Whether sampling goes on until its median is known."""

    def warm_up(self, timer: Timer) -> None:
        warm = self.run(partial(timer.warm_up, self.call))
        self.warm = warm and replace(warm, name=self.name)

    def run(self, call: Callable[[], Result]) -> Result | None:
        """Call; an exception becomes the contender's failure, and the result None."""
        try:
            return call()
        except LosscliError:  # such as a failed build, which fails every case
            raise
        except Exception as error:
            self.fail(error)
            return None

    def fail(self, error: Exception) -> None:
        """Record an exception without the tensors of its frames."""
        self.failure = error.with_traceback(None)

    def close(self) -> None:
        """Free what the call holds."""
        self.call, self.warm = lambda: None, None


def interleave(
    timer: Timer,
    contenders: Sequence[Contender],
    timing: Timing,
    *,
    seed: int,
    before: Callable[[], object] = lambda: None,
    slowed: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.perf_counter,
    until: float = math.inf,
) -> Stop:
    """Sample the contenders in rounds, each in a new random order; return why it stopped.

    A round takes one sample of each, so drift of the machine affects all alike. ``before`` runs
    before each batch of rounds; ``slowed`` tells after it whether to discard it.
    """
    shuffle = random.Random(seed)
    start = clock()
    longest = min(timing.max_time, until - start)
    rounds = taken = 0
    batch = 1
    while True:
        able = [c for c in contenders if c.warm and c.failure is None]
        if not any(c.awaited for c in able):
            return "nothing left to sample"
        order = [c for _ in range(batch) for c in shuffle.sample(able, len(able))]
        before()
        try:
            seconds = timer.measure([c.warm for c in order if c.warm])
        except CallFailedError as failed:
            for contender in able:
                if contender.warm is failed.warm:
                    contender.fail(failed.error)
            continue
        taken += batch
        if slowed():
            for contender in able:
                contender.thrown_away += batch
        else:
            rounds += batch
            for contender, sample in zip(order, seconds, strict=True):
                contender.samples.append(sample)
        elapsed = clock() - start
        if stop := _stop(able, rounds, elapsed, timing):
            return stop
        if elapsed >= until - start:
            return "budget"
        if taken > rounds and elapsed >= 2 * timing.max_time:
            return "throttled"
        affordable = int((longest - elapsed) / (elapsed / taken)) if elapsed else rounds
        batch = max(1, min(rounds // 2, affordable, MAXIMUM_ROUNDS - rounds))


def _stop(able: Sequence[Contender], rounds: int, elapsed: float, timing: Timing) -> Stop | None:
    if rounds < 3:
        return None
    sampled = rounds >= CONFIDENT_ROUNDS and elapsed >= timing.min_time
    awaited = (summarize(c.samples) for c in able if c.awaited)
    if sampled and all(half_width(seconds) <= timing.confidence for seconds in awaited):
        return "confidence"
    if elapsed >= timing.max_time:
        return "time limit"
    return "sample limit" if rounds >= MAXIMUM_ROUNDS else None
