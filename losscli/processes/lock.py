"""A lock between processes on an open file, which names its holder."""

import contextlib
import json
import math
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Self

from losscli.errors import LosscliError, UnfitError

_PROC = Path("/proc")
LOCK = "lock"
_CLAIMED = "judge-"
_POLL_SECONDS = 0.02
_LOOK_SECONDS = 1.0
"""Between two looks at the holder."""

Notify = Callable[[str], None]
"""Is told who holds a lock."""


@dataclass(frozen=True)
class Holder:
    """The process in a lock's file."""

    pid: int = 0
    """0 if unknown."""
    host: str = ""
    since: str = ""

    @classmethod
    def here(cls, since: str = "") -> Self:
        """Return this process."""
        return cls(os.getpid(), socket.gethostname(), since or time.strftime("%H:%M:%S"))

    @classmethod
    def read(cls, file: IO[str]) -> Self:
        """Read it from a lock's file; it may have changed since."""
        file.seek(0)
        with contextlib.suppress(ValueError, TypeError):
            return cls(**json.loads(file.read()))
        return cls()

    def write(self, file: IO[str]) -> None:
        """Write it into a lock's file, unless the disk is full."""
        with contextlib.suppress(OSError):
            os.ftruncate(file.fileno(), 0)
            os.write(file.fileno(), json.dumps(asdict(self)).encode())

    def __str__(self) -> str:
        if not self.pid:
            return "another process"
        return f"process {self.pid} on {self.host} (since {self.since})"


class HeldError(LosscliError):
    """A lock was not free in time."""

    def __init__(self, holder: str, *, waits_for_us: bool = False) -> None:
        """``waits_for_us``: the holder would never release the lock."""
        self.holder, self.waits_for_us = holder, waits_for_us
        super().__init__(f"{holder} holds the lock")


def open_lock(path: Path) -> IO[str]:
    """Open a lock's file, not a link, for this user alone: reading suffices to lock it."""

    def opened(name: str, flags: int) -> int:
        found = os.open(name, flags | os.O_NOFOLLOW, 0o600)
        with contextlib.suppress(OSError):  # it is root's
            os.fchmod(found, 0o600)
        return found

    return open(path, "a+", encoding="utf-8", errors="replace", opener=opened)


def try_lock(file: IO[str], *, shared: bool = False) -> bool:
    """Take the lock if it is free; UnfitError if the file system has no locks."""
    import fcntl  # not there on Windows, where this module is to be importable all the same

    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        mend = "Name a folder on another file system in LOSSCLI_CACHE_DIR."
        raise UnfitError(f"cannot lock {file.name}: {error.strerror}. {mend}") from None
    return True


def unlock(file: IO[str]) -> None:
    """Release the lock; closing is not enough if another process inherited the file."""
    import fcntl

    fcntl.flock(file, fcntl.LOCK_UN)


def locked(file: IO[str], notify: Notify, **times: Any) -> contextlib.AbstractContextManager[None]:
    """Hold a build's lock within the block; after a second, note whom it waits for."""

    def waits(holder: str) -> None:
        notify(f"waiting for {holder} to finish building")

    return held(file, waits, notify_after=1.0, **times)


@contextlib.contextmanager
def held(
    file: IO[str],
    notify: Notify,
    *,
    notify_after: float,
    shared: bool = False,
    until: float = math.inf,
    waits_for_us: Callable[[int], bool] = lambda pid: False,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[None]:
    """Hold the lock within the block; HeldError at ``until``, or if a holder ``waits_for_us``."""
    started = look_at = clock()
    told = False
    while not try_lock(file, shared=shared):
        now = clock()
        if now >= look_at:
            look_at = now + _LOOK_SECONDS
            if stuck := [pid for pid in _holders(file) if waits_for_us(pid)]:
                raise HeldError(_named(stuck[0]), waits_for_us=True)
        if now >= until:
            raise HeldError(_holder(file))
        if not told and now - started >= notify_after:
            notify(_holder(file))
            told = True
        sleep(_POLL_SECONDS)
    if not shared:
        Holder.here().write(file)
    try:
        yield
    finally:
        if not shared:
            with contextlib.suppress(OSError):
                os.ftruncate(file.fileno(), 0)
        unlock(file)  # the compilers have the file too, and a cache's server keeps it


def _holder(file: IO[str]) -> str:
    holders, signed = _holders(file), Holder.read(file)
    return str(signed) if not holders or signed.pid in holders else _named(holders[0])


def _holders(file: IO[str]) -> list[int]:
    found = os.fstat(file.fileno())
    place = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    try:
        lines = (_PROC / "locks").read_text().splitlines()
    except OSError:
        return []
    fields = [line.split() for line in lines]
    # A waiting process has an arrow instead of the kind.
    return [int(each[4]) for each in fields if each[1:2] == ["FLOCK"] and each[5:6] == [place]]


def _named(pid: int) -> str:
    with contextlib.suppress(OSError):
        return f"process {pid} ({(_PROC / str(pid) / 'comm').read_text().strip()})"
    return f"process {pid}"


def claim_folder(parent: Path) -> Path:
    """Create a folder that this process owns until it ends, on a disk that hosts share.

    A lock shows that, because process ids mean nothing in another container.
    """
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_CLAIMED, dir=parent))
        # Until it is locked, another process may consider it abandoned and remove it.
        with contextlib.suppress(FileNotFoundError), open_lock(folder / LOCK) as file:
            if try_lock(file) and os.path.samestat(os.stat(file.name), os.fstat(file.fileno())):
                os.dup(file.fileno())  # is never closed, and keeps the lock
                return folder


def remove_unclaimed(parent: Path) -> None:
    """Remove the folders of ended processes."""
    for folder in parent.glob(f"{_CLAIMED}*"):
        with contextlib.suppress(OSError):
            if not (folder / LOCK).exists():
                folder.rmdir()  # one that is being made is not there then, and is made again
                continue
            with open_lock(folder / LOCK) as file:
                if try_lock(file):
                    shutil.rmtree(folder, ignore_errors=True)
