"""Ends a rank that was told to end while it waits for others, who may never come."""

from __future__ import annotations

import os
import signal
import threading
import time

from losscli.errors import EXIT_INTERRUPTED

GRACE_SECONDS = 8.0
"""The time in which the first rank may write its report."""


def end_when_told(grace: float = GRACE_SECONDS) -> None:
    """Have this process end so many seconds after a signal to end, whatever it waits for.

    Python's own handlers run only when a call into a library has returned, as that of a collective
    which a GPU waits in. What is finished is in the journal.
    """
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)

    def watch() -> None:
        os.read(read, 1)
        time.sleep(grace)
        os._exit(EXIT_INTERRUPTED)

    threading.Thread(target=watch, daemon=True).start()
