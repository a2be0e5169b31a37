"""The time that a run and its tasks have."""

import math
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Self

from losscli.reasons import Code, Reason

PART_OF_LAST = 0.75
"""Another process measures a task if this fraction of the last turn's time is left."""

RINGS_AGAIN_SECONDS = 15.0
"""An exception in a finaliser is lost, so the alarm repeats. A build ends in less time."""


@dataclass(frozen=True)
class Budget:
    """The seconds that a task, or a process that measures it, has when it begins."""

    total: float = math.inf
    left: float = math.inf
    """The time until the run has to end."""
    share: float = math.inf
    """The part of it after which sampling stops."""

    @property
    def used_up(self) -> Reason:
        return Reason(Code.BUDGET, f"the budget of {self.total:g} s is used up")

    def after(self, seconds: float, turns: int = 1) -> Self:
        """Return what is left after some time, with the share divided over ``turns``."""
        share = max(self.share - seconds, 0.0) / turns
        return replace(self, left=self.left - seconds, share=share)


class Turns:
    """Divides a task's time over the processes that measure it one after the other."""

    def __init__(self, budget: Budget, clock: Callable[[], float]) -> None:
        self.budget, self.clock, self.began = budget, clock, clock()
        self.limited = budget.total < math.inf
        self.last: float | None = None

    def has_time(self, start_seconds: float) -> bool:
        """Tell whether another process, which takes so long to start, can measure."""
        left = self.left()
        if self.last is None:
            return left.left > 0
        return left.share >= start_seconds + PART_OF_LAST * (self.clock() - self.last)

    def take(self, turns: int) -> Budget:
        self.last = self.clock()
        return self.left(turns)

    def left(self, turns: int = 1) -> Budget:
        return self.budget.after(self.clock() - self.began, turns)


class TimeIsUp(BaseException):
    """A block has no time left; not an Exception, which would be an implementation's failure."""


@contextmanager
def alarm(seconds: float, *, rings: bool = True) -> Iterator[None]:
    """Raise TimeIsUp when the time of a block is over; if not ``rings``, only at its start."""
    if seconds <= 0:
        raise TimeIsUp
    if not rings or seconds == math.inf:
        yield
        return

    def ring(*_: object) -> None:
        raise TimeIsUp

    before = signal.signal(signal.SIGALRM, ring)
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, seconds, RINGS_AGAIN_SECONDS)
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
    finally:
        signal.signal(signal.SIGALRM, before)
