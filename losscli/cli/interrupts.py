"""The signals that end a run. Imports almost nothing: a signal may come at any time."""

import os
import signal
import sys
from time import monotonic

INTERRUPTED = 130
"""``EXIT_INTERRUPTED`` of losscli.errors, which is not imported yet."""

received: list[float] = []
"""When signals came since the command began; some code may swallow their exceptions."""
TOGETHER_SECONDS = 1.0
"""Signals within this time are one: a terminal and a parent may both send it."""


def receive() -> None:
    """Raise KeyboardInterrupt for a signal; a second signal also kills child processes.

    Signals that come together raise once, so that the report of the first is written to its end.
    """
    now = monotonic()
    received.append(now)
    if len(received) > 1:
        _kill_processes()
        if now - received[0] < TOGETHER_SECONDS:
            return
    raise KeyboardInterrupt


def _kill_processes() -> None:
    if module := sys.modules.get("losscli.processes.process"):
        module.kill_all()


def numbers() -> list[int]:
    """Return the signals to handle; an ignored one stays ignored, as SIGHUP under nohup."""
    names = ("SIGINT", "SIGTERM", "SIGHUP")  # Windows has no SIGHUP
    known = [getattr(signal, name) for name in names if hasattr(signal, name)]
    return [number for number in known if signal.getsignal(number) is not signal.SIG_IGN]


def end_at_once(*_: object) -> None:
    """End the program with one line: nothing is measured yet, so nothing is lost."""
    _kill_processes()
    is_other_rank = "TORCHELASTIC_RUN_ID" in os.environ and os.environ.get("RANK", "0") != "0"
    if sys.argv[1:2] != ["judge-job"] and not is_other_rank:
        os.write(2, b"losscli: interrupted\n")
    os._exit(INTERRUPTED)


def raise_if_received() -> None:
    """Raise KeyboardInterrupt again if some code swallowed it."""
    if received:
        raise KeyboardInterrupt
