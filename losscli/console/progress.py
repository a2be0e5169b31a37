"""Progress with the time left: a status line on a terminal, a few lines in a log."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from losscli.console.notes import has_status, note, status
from losscli.units import format_duration

FIRST_LINE = 30.0
"""Seconds until a log's first line; each interval doubles."""
LONGEST_WAIT = 600.0


class Progress:
    """A context that reports progress and the remaining time."""

    def __init__(
        self,
        weights: Sequence[float],
        *,
        guess: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``guess``: the total seconds, used until the first job is finished."""
        self.weights, self._guess, self._clock = list(weights), guess, clock
        """The jobs' relative times; a build learns of its jobs one by one."""
        self.finished = 0
        self._start = clock()
        self._wait = FIRST_LINE
        self._next_line = self._start + self._wait

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        status("")

    def working_on(self, name: str) -> None:
        """Show the current job; nothing once all are finished."""
        if self.weights and self.finished >= len(self.weights):
            return
        of = f" of {len(self.weights)}" if self.weights else ""  # or nobody knows
        left = self.seconds_left()
        time_left = "" if left is None else f", about {format_duration(left)} left"
        line = f"{self.finished}{of} done{time_left}: {name}"
        if has_status():
            status(line)
        elif self._clock() >= self._next_line:
            note(line)
            self._wait = min(2 * self._wait, LONGEST_WAIT)
            self._next_line = self._clock() + self._wait

    def finish_one(self) -> None:
        """Count a job as finished."""
        self.finished += 1

    def seconds_left(self) -> float | None:
        """Return the estimated remaining time, or None."""
        done, all_ = sum(self.weights[: self.finished]), sum(self.weights)
        elapsed = self._clock() - self._start
        if not done:
            # An exceeded guess tells nothing about the rest.
            return None if self._guess is None or self._guess <= elapsed else self._guess - elapsed
        return elapsed * (all_ - done) / done
