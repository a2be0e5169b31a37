"""A lock between processes, on an open file; the kernel releases it when its holder ends.

The holder of a lock that others wait for for long writes its name into the file.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import IO

from losscli.errors import UnfitError


@dataclass(frozen=True)
class Holder:
    """The process that holds a lock, as it is written into the lock's file."""

    pid: int = 0
    """0 where it is unknown."""
    host: str = ""
    since: str = ""

    @classmethod
    def here(cls, since: str = "") -> Holder:
        """Return this process."""
        return cls(os.getpid(), socket.gethostname(), since or time.strftime("%H:%M:%S"))

    @classmethod
    def read(cls, file: IO[str]) -> Holder:
        """Read the holder of a lock, which may have changed since."""
        file.seek(0)
        try:
            return cls(**json.loads(file.read()))
        except (ValueError, TypeError):
            return cls()

    def write(self, file: IO[str]) -> None:
        """Write it into the file of a lock that is held."""
        file.truncate(0)
        json.dump(asdict(self), file)
        file.flush()

    def __str__(self) -> str:
        """Return ``process 4711 on node7 (since 10:21:33)``."""
        if not self.pid:
            return "another process"
        return f"process {self.pid} on {self.host} (since {self.since})"


_NOTIFY_AFTER = 1.0
"""Seconds of waiting before the first message."""
_POLL = 0.05


def try_lock(file: IO[str], *, shared: bool = False) -> bool:
    """Take the lock if it is free, alone or shared with others; tell whether it was taken.

    Raises:
        UnfitError: the file system has no locks.
    """
    import fcntl  # not there on Windows, where this module is to be importable all the same

    mode = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(file, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise UnfitError(
            f"cannot lock {file.name}: {error.strerror}. Name a folder on another file system in "
            "LOSSCLI_CACHE_DIR."
        ) from None
    return True


def unlock(file: IO[str]) -> None:
    """Release the lock; closing the file would not do where another process has inherited it."""
    import fcntl

    fcntl.flock(file, fcntl.LOCK_UN)


@contextlib.contextmanager
def locked(
    file: IO[str],
    notify: Callable[[str], None],
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[None]:
    """Hold the lock within the block, waiting for it as long as it takes.

    Args:
        file: the file to lock, open for reading and appending; other holders opened their own.
        notify: told once, after a second of waiting, whom the wait is for.
        clock: seconds, monotonic.
        sleep: waits so many seconds.

    Raises:
        UnfitError: the file system has no locks.
    """
    started, told = clock(), False
    while not try_lock(file):
        if not told and clock() - started >= _NOTIFY_AFTER:
            notify(f"waiting for {Holder.read(file)} to finish building")
            told = True
        sleep(_POLL)
    Holder.here().write(file)
    try:
        yield
    finally:
        file.truncate(0)
        unlock(file)  # the compilers have the file too, and a cache's server keeps it
