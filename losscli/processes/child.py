"""What a started process does first: take the channel to its parent, and end with it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import sys
from collections.abc import Iterator

from losscli.processes.channel import Channel

_PR_SET_PDEATHSIG = 1


@contextlib.contextmanager
def to_parent(number: int = signal.SIGKILL) -> Iterator[Channel]:
    """Yield the channel to the parent until it ends; leave standard input empty.

    Standard output is standard error, as :class:`Process` has it. ``number`` is the signal that
    the process gets when its parent ends.
    """
    end_with_parent(number)
    end = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdout = sys.stderr
    with Channel(end) as channel, contextlib.suppress(BrokenPipeError):
        yield channel


def end_with_parent(number: int = signal.SIGKILL) -> None:
    """Have Linux send this process a signal when the thread that started it ends."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
