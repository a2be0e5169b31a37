"""A lock of each device: who times holds it alone, who builds or checks shares it.

A process that shares it has to release it before it asks for it alone.
"""

import contextlib
import platform
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from losscli.errors import writing
from losscli.files.directories import CACHE_VARIABLE, LOCKS, make_private, private_folder
from losscli.machine.devices import gpu_uuid
from losscli.processes.lock import held, open_lock, try_lock, unlock


@contextlib.contextmanager
def device_lock(
    device: str,
    *,
    shared: bool = False,
    notify: Callable[[str], None] = lambda note: None,
    clock: Callable[[], float] = time.monotonic,
    **waits: Any,
) -> Iterator[float]:
    """Hold a device's lock within the block; yield the seconds of waiting.

    ``shared``: to build or check, else to time. ``notify`` gets the holder if the wait is long.
    ``waits`` are other arguments of :func:`held`, such as ``until``.
    """

    def note(holder: str) -> None:
        notify(f"waiting for {holder}, which has the lock of {device}")

    waits |= {"notify": note, "notify_after": 5.0, "clock": clock}
    started = clock()
    # All pass the turnstile; a process that waits to time blocks it. Otherwise processes that share
    # the lock could keep it among them for ever.
    with _open(device, "entry") as entry, _open(device) as file, contextlib.ExitStack() as locks:
        turnstile = locks.enter_context(contextlib.ExitStack())
        turnstile.enter_context(held(entry, **waits))
        locks.enter_context(held(file, shared=shared, **waits))
        if shared:
            turnstile.close()
        yield clock() - started


def is_alone(device: str) -> bool:
    """Tell whether no other process builds, checks or times on a device now."""
    with _open(device) as lock:
        if alone := try_lock(lock):
            unlock(lock)
    return alone


def lock_path(device: str, kind: str = "lock") -> Path:
    """Return the lock file of a device of this host: several hosts may share the cache."""
    uuid = None if device == "cpu" else gpu_uuid(device)  # cuda:0 depends on what a process sees
    identity = f"gpu-{uuid.replace('-', '')}" if uuid else device
    name = re.sub(r"[^A-Za-z0-9.-]", "_", f"{platform.node()}-{identity}")
    return private_folder("locks", LOCKS) / f"{name}.{kind}"


def _open(device: str, kind: str = "lock") -> IO[str]:
    path = lock_path(device, kind)
    with writing(path, f"Name a folder that can be written in {CACHE_VARIABLE}."):
        make_private(path.parent)
        return open_lock(path)
