"""Finds processes and threads that a file left running."""

import contextlib
import os
import time
from pathlib import Path

from losscli.machine.own_processes import children

WATCHED_SECONDS, WATCHES = 0.1, 10
"""OpenMP threads spin for a while after a call, longer if they share cores."""


def find() -> list[str]:
    """Name the processes that the candidate left running."""
    own = os.getpid()
    if own == 1 and os.readlink("/proc/self") == "1":  # it shows those of the namespace alone
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    else:
        pids = children(own) + children(os.getppid())  # orphans belong to the keeper
    left = [name for pid in pids if pid != own and (name := _name_of(pid))]
    return left or (["a thread that goes on computing"] if goes_on_computing() else [])


def goes_on_computing() -> bool:
    """Tell whether threads compute for a full second while this one sleeps."""
    for _ in range(WATCHES):
        before = _wanted_seconds()
        time.sleep(WATCHED_SECONDS)
        if _wanted_seconds() - before < WATCHED_SECONDS / 2:
            return False
    return True


def _wanted_seconds() -> float:
    """Return how long threads ran or, if schedstat is known, waited for a core."""
    if not Path("/proc/self/schedstat").exists():
        return time.process_time()
    nanoseconds = 0
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            computed, waited, _ = Path(f"/proc/self/task/{thread}/schedstat").read_text().split()
            nanoseconds += int(computed) + int(waited)
    return nanoseconds / 1e9


def _name_of(pid: int) -> str:
    """Return a process's name or number; empty if it has ended."""
    with contextlib.suppress(OSError):
        known, _, state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
        if state.split()[0] != "Z":
            return known.partition("(")[2].strip() or str(pid)
    return ""
