"""The signals that end a run. Imports almost nothing, because a signal may come at any time."""

from __future__ import annotations

import os
import signal
import sys

NAMES = ("SIGINT", "SIGTERM", "SIGHUP")
"""The signals that end a run; Windows has no SIGHUP."""
INTERRUPTED = 130
"""``EXIT_INTERRUPTED`` of losscli.errors, which is not imported yet."""

received: list[int] = []
"""Numbers of the signals since the command began; some code may swallow their exceptions."""


def numbers() -> list[int]:
    """Return the signals to handle; an ignored signal stays ignored, as SIGHUP under nohup."""
    known = [getattr(signal, name) for name in NAMES if hasattr(signal, name)]
    return [number for number in known if signal.getsignal(number) is not signal.SIG_IGN]


def end_at_once(*_: object) -> None:
    """End the program with one line: nothing is measured yet, so there is nothing to save.

    A process of `losscli judge` says nothing: the command that started it does, once for all. So
    does the first of several ranks that torchrun started.
    """
    is_other_rank = "TORCHELASTIC_RUN_ID" in os.environ and os.environ.get("RANK", "0") != "0"
    if sys.argv[1:2] != ["judge-job"] and not is_other_rank:
        os.write(2, b"losscli: interrupted\n")
    os._exit(INTERRUPTED)


def raise_if_received() -> None:
    """Raise KeyboardInterrupt again if a signal came and some code swallowed the exception."""
    if received:
        raise KeyboardInterrupt
