"""Notes, and progress with the time left, on standard error; none with --quiet."""

import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from losscli.console.streams import tell
from losscli.errors import one_line, printable
from losscli.units import format_duration

Clock = Callable[[], float]
QUIET_VARIABLE = "LOSSCLI_QUIET"
LOADING = "loading PyTorch, a few seconds"
FIRST_LINE = 30.0
"""Seconds until a log's first line; each interval doubles."""
LONGEST_WAIT = 600.0
_CLEAR = "\r\033[K"

_shown = ""


def is_quiet() -> bool:
    """Tell whether --quiet was given, or its variable is set."""
    return is_on(QUIET_VARIABLE)


def is_on(variable: str) -> bool:
    """Tell whether a variable switches its option on."""
    return os.environ.get(variable, "").strip().lower() in ("1", "on", "t", "true", "y", "yes")


def note(text: str) -> None:
    """Write a line for the user, unless quiet."""
    say(f"losscli: {text}")


def say(text: str) -> None:
    """Write printable text above the status line, unless quiet."""
    if is_quiet():
        return
    # The line may belong to the parent process.
    clear = _CLEAR if has_status() else ""
    tell(f"{clear}{printable(text)}")
    status(_shown)


def status(text: str) -> None:
    """Replace the status line of a terminal; an empty text clears it."""
    global _shown
    if not has_status():
        return
    if text or _shown:
        columns = shutil.get_terminal_size((100, 24)).columns
        tell(f"{_CLEAR}{one_line(text)[: columns - 1]}", end="")
    _shown = text


def has_status() -> bool:
    """Tell whether there is a status line: on a terminal, unless quiet."""
    return sys.stderr.isatty() and not is_quiet()


class Progress(AbstractContextManager["Progress"]):
    """A context that shows progress: a status line on a terminal, a few lines in a log."""

    def __init__(
        self, weights: Sequence[float], *, guess: float | None = None, clock: Clock = time.monotonic
    ) -> None:
        """``guess``: the total seconds, used until the first job is finished."""
        self.weights, self._guess, self._clock = list(weights), guess, clock
        """The jobs' relative times; a build learns of its jobs one by one."""
        self.finished = 0
        self._start = clock()
        self._wait = FIRST_LINE
        self._next_line = self._start + self._wait

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

    def seconds_left(self) -> float | None:
        """Return the estimated remaining time, or None."""
        done, all_ = sum(self.weights[: self.finished]), sum(self.weights)
        elapsed = self._clock() - self._start
        if not done:
            # An exceeded guess tells nothing about the rest.
            return None if self._guess is None or self._guess <= elapsed else self._guess - elapsed
        return elapsed * (all_ - done) / done
