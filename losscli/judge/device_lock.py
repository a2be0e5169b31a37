"""Keeps a device to one judge while it times: a lock that others share while they build or check.

Timings disturb each other, and builds and checks disturb timings. So whoever times a device holds
its lock alone, and whoever builds or checks shares it. Who shares must let go before he asks for
the lock alone. The kernel releases the locks of a process that ends.
"""

import contextlib
import math
import platform
import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO

from losscli.errors import writing
from losscli.files.directories import CACHE_VARIABLE, LOCKS, make_private, private_folder
from losscli.machine.devices import gpu_uuid
from losscli.processes.lock import held, open_lock, try_lock, unlock

_NOTIFY_AFTER = 5.0


@contextlib.contextmanager
def device_lock(
    device: str,
    *,
    shared: bool = False,
    until: float = math.inf,
    waits_for_us: Callable[[int], bool] = lambda pid: False,
    notify: Callable[[str], None] = lambda note: None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[float]:
    """Hold the lock of a device within the block; yield how many seconds the wait took.

    ``shared``: with others that build or check; otherwise alone, to time. ``until``: the time by
    the clock after which no more is waited. ``waits_for_us``: whether a process that holds the lock
    is one that this judge has started, and that stays until it has the lock. ``notify`` is told
    once who holds the lock, if the wait takes long.

    Raises:
        HeldError: the lock was not free in time.
        UnfitError: the locks cannot be written, or the file system has none.
    """
    started = clock()
    take = partial(
        held,
        notify=lambda holder: notify(f"waiting for {holder}, which has the lock of {device}"),
        notify_after=_NOTIFY_AFTER,
        until=until,
        waits_for_us=waits_for_us,
        clock=clock,
        sleep=sleep,
    )
    # All go through the turnstile, where whoever is to time stays: else those who share could
    # keep the lock among them for ever.
    with _open(device, "entry") as entry, _open(device) as file, contextlib.ExitStack() as locks:
        turnstile = locks.enter_context(contextlib.ExitStack())
        turnstile.enter_context(take(entry))
        locks.enter_context(take(file, shared=shared))
        if shared:
            turnstile.close()
        yield clock() - started


def is_alone(device: str) -> bool:
    """Tell whether nobody else builds, checks or times on a device at this moment."""
    with _open(device) as lock:
        alone = try_lock(lock)
        if alone:
            unlock(lock)
    return alone


def lock_path(device: str, kind: str = "lock") -> Path:
    """Return the file of a device's lock: of this host, for the cache may be on several."""
    name = re.sub(r"[^A-Za-z0-9.-]", "_", f"{platform.node()}-{_identity(device)}")
    return private_folder("locks", LOCKS) / f"{name}.{kind}"


def _open(device: str, kind: str = "lock") -> IO[str]:
    path = lock_path(device, kind)
    with writing(path, f"Name a folder that can be written in {CACHE_VARIABLE}."):
        make_private(path.parent)
        return open_lock(path)


def _identity(device: str) -> str:
    """Return the name of a device that all processes agree on, whatever GPUs each may see."""
    uuid = None if device == "cpu" else gpu_uuid(device)
    return f"gpu-{uuid.replace('-', '')}" if uuid else device
