"""The budget of a run: its time is divided over the tasks as they begin, and ends them."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from losscli.reasons import Code, Reason
from losscli.units import format_duration

if TYPE_CHECKING:
    from losscli.bench.plan import Task

PART_OF_LONGEST = 0.75
"""Another process measures a task if this part of the longest turn before it is left."""


@dataclass(frozen=True)
class Budget:
    """The seconds that a task, or a process that measures it, has when it begins."""

    total: float
    """The budget of the run."""
    left: float
    """The time until the run has to end."""
    share: float
    """The part of it after which sampling stops."""

    @property
    def used_up(self) -> Reason:
        """Why something was not measured."""
        return Reason(Code.BUDGET, f"the budget of {format_duration(self.total)} is used up")

    def after(self, seconds: float, turns: int = 1) -> Budget:
        """Return what is left after some time, with the share divided over ``turns``."""
        share = max(self.share - seconds, 0.0) / turns
        return replace(self, left=self.left - seconds, share=share)


class Turns:
    """Divides the time of a task over the processes that measure it one after the other."""

    def __init__(self, budget: Budget, clock: Callable[[], float]) -> None:
        """``clock`` tells seconds."""
        self.budget, self.clock = budget, clock
        self.began = clock()
        self.starts: list[float] = []

    def has_time(self, start_seconds: float) -> bool:
        """Tell whether another process can measure, which takes so long to start."""
        now = self.clock()
        left = self.budget.after(now - self.began)
        if not self.starts:
            return left.left > 0
        ends = [*self.starts[1:], now]
        longest = max(end - start for start, end in zip(self.starts, ends, strict=True))
        return left.share >= start_seconds + PART_OF_LONGEST * longest

    def take(self, turns: int) -> Budget:
        """Return the budget of the next of ``turns`` processes."""
        now = self.clock()
        self.starts.append(now)
        return self.budget.after(now - self.began, turns)


class Schedule:
    """The tasks of a run, each with its share of the time that is left when it begins."""

    def __init__(
        self,
        tasks: Sequence[Task],
        seconds_of: Callable[[Task], float],
        total: float | None,
        elapsed: Callable[[], float],
        build: Callable[[Sequence[Task]], object] = lambda tasks: None,
    ) -> None:
        """Take a run's budget of ``total`` seconds, and what tells the seconds since it began.

        ``build`` makes what tasks need: at first for one, so that its results come soon, and then
        for all others together.
        """
        self.tasks, self.seconds_of, self.total = tasks, seconds_of, total
        self.elapsed, self.build = elapsed, build

    def __len__(self) -> int:
        return len(self.tasks)

    def __iter__(self) -> Iterator[Task]:
        weights = [*map(self.seconds_of, self.tasks)]
        for number, task in enumerate(self.tasks):
            if number < 2:
                left = math.inf if self.total is None else self.total - self.elapsed()
                with suppress(TimeIsUp), alarm(left):
                    self.build(self.tasks[1:] if number else self.tasks[:1])
            if self.total is None:
                yield task
            else:
                left = max(self.total - self.elapsed(), 0.0)
                share = left * weights[number] / sum(weights[number:])
                yield replace(task, budget=Budget(self.total, left, share))


class TimeIsUp(BaseException):
    """A block has no time left; no Exception, which would count as an implementation's."""


@contextmanager
def alarm(seconds: float, *, rings: bool = True) -> Iterator[None]:
    """Raise TimeIsUp: at once where no time is left, else in the block, unless it never rings."""
    if seconds <= 0:
        raise TimeIsUp
    if not rings or seconds == math.inf:
        yield
        return

    def ring(*_: object) -> None:
        raise TimeIsUp

    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
