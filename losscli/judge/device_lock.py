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

from losscli.directories import CACHE_VARIABLE, cache_directory
from losscli.errors import UnfitError
from losscli.machine.devices import gpu_uuid
from losscli.processes.lock import try_lock, unlock

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
    started, told = clock(), False

    def wait(file: IO[str], *, shared: bool) -> None:
        nonlocal told
        while not try_lock(file, shared=shared):
            if not told and clock() - started >= _NOTIFY_AFTER:
                notify(f"waiting for the timing of another kernel on {device} to finish")
                told = True
            sleep(_POLL)

    # All go through the turnstile, where whoever is to time stays: else those who share could
    # keep the lock among them for ever.
    with _open(device, "entry") as turnstile, _open(device, "lock") as lock:
        wait(turnstile, shared=False)
        wait(lock, shared=shared)
        if shared:
            unlock(turnstile)
        try:
            yield clock() - started
        finally:
            unlock(lock)
            unlock(turnstile)


def is_alone(device: str) -> bool:
    """Tell whether nobody else builds, checks or times on a device at this moment."""
    with _open(device, "lock") as lock:
        alone = try_lock(lock)
        if alone:
            unlock(lock)
    return alone


def lock_path(device: str, kind: str = "lock") -> Path:
    """Return the file of a device's lock: of this host, for the cache may be on several."""
    name = re.sub(r"[^A-Za-z0-9.-]", "_", f"{platform.node()}-{_identity(device)}")
    return cache_directory("locks") / "locks" / f"{name}.{kind}"


def _open(device: str, kind: str) -> IO[str]:
    path = lock_path(device, kind)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("a+", encoding="utf-8")
    except OSError as error:
        raise UnfitError(
            f"cannot write {path}: {error.strerror}. Name a folder that can be written in "
            f"{CACHE_VARIABLE}."
        ) from None


def _identity(device: str) -> str:
    """Return the name of a device that all processes agree on, whatever GPUs each may see."""
    uuid = None if device == "cpu" else gpu_uuid(device)
    return f"gpu-{uuid.replace('-', '')}" if uuid else device
