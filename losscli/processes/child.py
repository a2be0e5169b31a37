"""A started process's first steps: take the channel to its parent, and end with it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator

from losscli.processes.channel import Channel

_PR_SET_PDEATHSIG = 1
_POLL_SECONDS = 0.5


@contextlib.contextmanager
def to_parent(grace: float = 0.0) -> Iterator[Channel]:
    """Yield the channel to the parent until it ends; leave standard input empty.

    Standard output goes to standard error, as :class:`Process` has it. If the parent ends, the
    process is killed, or gets SIGTERM and ``grace`` seconds to clean up.
    """
    end_with_parent(gently=grace > 0)
    if grace:
        threading.Thread(target=_watch, args=(os.getppid(), grace), daemon=True).start()
    end = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdout = sys.stderr
    with Channel(end) as channel, contextlib.suppress(BrokenPipeError):
        yield channel


def end_with_parent(*, gently: bool = False) -> None:
    """Have Linux kill this process, or send SIGTERM, when its parent thread ends."""
    number = signal.SIGTERM if gently else signal.SIGKILL
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)


def _watch(parent: int, grace: float) -> None:
    """Interrupt this process when its parent has ended; kill it after ``grace``."""
    while os.getppid() == parent:
        time.sleep(_POLL_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(grace)
    os.kill(os.getpid(), signal.SIGKILL)
