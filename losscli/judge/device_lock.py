"""A lock of each device, and whether a GPU works before and after a candidate.

Who times holds the lock alone, who builds or checks shares it. A process that shares it has to
release it before it asks for it alone. The operating system releases the locks of a process that
ends.
"""

import contextlib
import platform
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import torch

from losscli.errors import writing
from losscli.files.directories import CACHE_VARIABLE, LOCKS, make_private, private_folder
from losscli.machine.devices import gpu_uuid, is_broken
from losscli.processes.lock import held, open_lock, try_lock, unlock
from losscli.units import format_bytes

SECONDS = 10.0
"""How long a GPU may take to recover, beyond the longest call of another candidate."""
LOST_BYTES = 256 * 2**20
"""Less than this is the driver's and this process's own."""
_NOTIFY_AFTER = 5.0
_POLL = 0.05


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
    ``waits`` are other arguments of :func:`held`, such as ``until``. HeldError as there;
    UnfitError: the locks cannot be written, or the file system has none.
    """

    def note(holder: str) -> None:
        notify(f"waiting for {holder}, which has the lock of {device}")

    waits |= {"notify": note, "notify_after": _NOTIFY_AFTER, "clock": clock}
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


class Canary:
    """A GPU's state before a candidate."""

    def __init__(self, device: str, call_seconds: float) -> None:
        """Look at a device; ``call_seconds``: how long another candidate's call may take."""
        self.device, self.seconds = device, SECONDS + call_seconds
        self.free_bytes = _free(device) if device != "cpu" and is_alone(device) else None
        """None where other judges share the device."""

    def trouble(self) -> str:
        """Return what is wrong with the GPU after waiting for it; empty if nothing is."""
        if self.device == "cpu":
            return ""
        limit = time.monotonic() + self.seconds
        while (told := self._trouble(limit)) and time.monotonic() < limit:
            time.sleep(_POLL)
        return told

    def _trouble(self, limit: float) -> str:
        if is_broken(self.device):
            return f"{self.device} is unusable in this process"
        with torch.cuda.device(self.device):
            done = torch.cuda.Event()
            torch.ones(2**20, device=self.device).sum()
            done.record()
        while not done.query():
            if time.monotonic() >= limit:
                return f"a kernel on {self.device} did not finish within {self.seconds:g} s"
            time.sleep(_POLL)
        if self.free_bytes is None or not is_alone(self.device):
            return ""
        lost = self.free_bytes - _free(self.device)
        if lost > LOST_BYTES:
            return f"{format_bytes(lost)} of the memory of {self.device} did not come back"
        return ""


def _free(device: str) -> int:
    torch.ones(2**20, device=device).sum()  # loads CUDA's kernel, before the canary measures
    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()
    return int(torch.cuda.mem_get_info(device)[0])
