"""Ends a rank that was told to end while it waits for others."""

from __future__ import annotations

import os
import signal
import threading
import time

from losscli.errors import EXIT_INTERRUPTED

GRACE_SECONDS = 8.0
"""The time in which the first rank may write its report."""


def end_when_told() -> None:
    """End this process GRACE_SECONDS after a signal, whatever it waits for.

    Python's handlers run only after a library call returns, such as a collective on a GPU. Finished
    results are in the journal.
    """
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)

    def watch() -> None:
        os.read(read, 1)
        time.sleep(GRACE_SECONDS)
        os._exit(EXIT_INTERRUPTED)

    threading.Thread(target=watch, daemon=True).start()
