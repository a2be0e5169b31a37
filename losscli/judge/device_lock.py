"""Keeps a device to one judge while it times: a lock that others share while they build or check.

Timings disturb each other, and builds and checks disturb timings. So whoever times a device holds
its lock alone, and whoever builds or checks shares it. Who shares must let go before he asks for
the lock alone. The kernel releases the locks of a process that ends.
"""

from __future__ import annotations

import contextlib
import platform
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from losscli.directories import user_directory
from losscli.errors import UnfitError
from losscli.machine.devices import gpu_uuid

VARIABLE = "LOSSCLI_CACHE_DIR"
_NOTIFY_AFTER = 5.0
"""Seconds of waiting before the first message."""
_POLL = 0.02
"""Seconds between two attempts."""


@contextlib.contextmanager
def device_lock(
    device: str,
    *,
    shared: bool = False,
    notify: Callable[[str], None] = lambda note: None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[float]:
    """Hold the lock of a device within the block; yield how many seconds the wait took.

    Args:
        device: ``cpu`` or ``cuda:N``.
        shared: with others that build or check; otherwise alone, to time.
        notify: told once if the wait takes long.
        clock: seconds, monotonic.
        sleep: waits so many seconds.

    Raises:
        UnfitError: the locks cannot be written, or the file system has none.
    """
    import fcntl  # not there on Windows, where this module is to be importable all the same

    mode = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    started, told = clock(), False

    def wait(file: IO[str], mode: int) -> None:
        nonlocal told
        while not _try_lock(file, mode):
            if not told and clock() - started >= _NOTIFY_AFTER:
                notify(f"waiting for the timing of another kernel on {device} to finish")
                told = True
            sleep(_POLL)

    # All go through the turnstile, where whoever is to time stays: else those who share could
    # keep the lock among them for ever.
    with _open(device, "turn") as turnstile, _open(device, "lock") as lock:
        wait(turnstile, fcntl.LOCK_EX)
        wait(lock, mode)
        if shared:
            fcntl.flock(turnstile, fcntl.LOCK_UN)
        try:
            yield clock() - started
        finally:
            # Closing alone would not do where a child has inherited the files.
            for file in (lock, turnstile):
                fcntl.flock(file, fcntl.LOCK_UN)


def is_alone(device: str) -> bool:
    """Tell whether nobody else builds, checks or times on a device at this moment."""
    import fcntl

    with _open(device, "lock") as lock:
        alone = _try_lock(lock, fcntl.LOCK_EX)
        if alone:
            fcntl.flock(lock, fcntl.LOCK_UN)
    return alone


def lock_path(device: str, kind: str = "lock") -> Path:
    """Return the file of a device's lock: of this host, for the cache may be on several."""
    name = re.sub(r"[^A-Za-z0-9.-]", "_", f"{platform.node()}-{_identity(device)}")
    return user_directory("cache", VARIABLE, "locks") / "locks" / f"{name}.{kind}"


def _open(device: str, kind: str) -> IO[str]:
    path = lock_path(device, kind)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("a+", encoding="utf-8")
    except OSError as error:
        raise UnfitError(
            f"cannot write {path}: {error.strerror}. Name a folder that can be written in "
            f"{VARIABLE}."
        ) from None


def _try_lock(file: IO[str], mode: int) -> bool:
    import fcntl

    try:
        fcntl.flock(file, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise UnfitError(
            f"cannot lock {file.name}: {error.strerror}. Name a folder on another file system in "
            f"{VARIABLE}."
        ) from None
    return True


def _identity(device: str) -> str:
    """Return the name of a device that all processes agree on, whatever GPUs each may see."""
    uuid = None if device == "cpu" else gpu_uuid(device)
    return f"gpu-{uuid.replace('-', '')}" if uuid else device
