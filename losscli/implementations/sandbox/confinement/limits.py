"""Limits a worker's memory, processes, open files and file sizes; see docs/isolation.md.

A control group (version 2), if one can be made, counts unmapped memory too.
"""

import os
import platform
import re
import resource
import signal
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from losscli.machine.kernel_files import groups, numbers
from losscli.machine.own_processes import children

OPEN_FILES = 4096
LOOK_SECONDS = 0.1
"""Between two polls; too short for a host's cores to fill its memory."""
GROWTH = 1.1
"""Growth of memory that requires another exact poll, which is slow."""
GROUPS = "losscli-"
TOO_MUCH_MEMORY, TOO_MANY_PROCESSES = 256, 257
"""Beyond the exit codes of a process."""


def set_limits(memory_bytes: int, processes: int, *, data: bool, own_users: bool) -> None:
    """Set limits for this process and each child; 0 bytes or processes means none."""
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_NOFILE, OPEN_FILES)
    kernel = tuple(map(int, re.findall(r"\d+", platform.release())[:2]))
    if processes and own_users and kernel >= (5, 14):  # its user namespace counts apart
        _limit(resource.RLIMIT_NPROC, processes)
    if memory_bytes:
        _limit(resource.RLIMIT_FSIZE, memory_bytes)
        if data:  # not for CUDA, which reserves large address ranges
            _limit(resource.RLIMIT_DATA, memory_bytes)


@dataclass
class Watch:
    """Polls the sum over descendants, as the kernel's limits are per process; 0 is no limit."""

    memory_bytes: int
    processes: int
    """With threads."""
    _looked_at: float = 0.0
    """The inexact memory at the last exact poll."""

    def look(self) -> int:
        """Return the exceeded limit, or 0."""
        pids = list(_descendants())
        found = [known for pid in pids if (known := _numbers(pid, "status"))]
        if 0 < self.processes < sum(each.get("Threads", 0) for each in found):
            return TOO_MANY_PROCESSES
        # Shared memory is counted in each process.
        most = sum(map(_whole, found))
        if not self.memory_bytes or most <= max(self.memory_bytes, GROWTH * self._looked_at):
            return 0
        self._looked_at = most
        return TOO_MUCH_MEMORY if sum(map(_share, pids)) > self.memory_bytes else 0


def wait(worker: int, watch: Watch) -> int:
    """Return a worker's exit status; end it at its limits. SIGCHLD must be blocked."""
    excess = 0
    while True:
        pid, status = os.waitpid(worker, os.WNOHANG)
        if pid:
            return excess or os.waitstatus_to_exitcode(status)
        if not excess and (excess := watch.look()):
            os.kill(worker, signal.SIGKILL)
        signal.sigtimedwait({signal.SIGCHLD}, LOOK_SECONDS)


def _whole(status: Mapping[str, int]) -> int:
    """Return a process's bytes, shared memory included."""
    if "RssAnon" not in status:
        return 1024 * status.get("VmRSS", 0)
    return 1024 * (status["RssAnon"] + status.get("RssShmem", 0))


def _share(pid: str) -> int:
    """Return a process's bytes with its share of shared memory, if known."""
    exact = _numbers(pid, "smaps_rollup")
    if "Pss_Anon" not in exact:
        return _whole(_numbers(pid, "status"))  # read again: it may have ended
    return 1024 * (exact["Pss_Anon"] + exact.get("Pss_Shmem", 0))


def _descendants() -> Iterator[str]:
    """Yield the ids of descendants; a worker's /proc shows only these."""
    if not os.path.exists("/proc/self"):
        yield from (name for name in os.listdir("/proc") if name.isdigit())
        return
    parents = [os.getpid()]
    while parents:
        below = children(parents.pop())
        parents += below
        yield from map(str, below)


def _numbers(pid: str, name: str) -> dict[str, int]:
    with suppress(OSError):
        return numbers(Path("/proc", pid, name))
    return {}


def _limit(which: int, most: int) -> None:
    hard = resource.getrlimit(which)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(which, (most, most))


class ControlGroup:
    """A control group held by open files, which workers cannot open; OSError if it cannot be made.

    It is a sibling of this process's group, because a group with processes cannot have limited
    children. Root can make one, and a user in a delegated systemd session.
    """

    def __init__(self, beside: Path, memory_bytes: int, processes: int) -> None:
        self._folder = os.open(beside, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._name = f"{GROUPS}{os.getpid()}"
        self._entry = self._events = -1
        try:
            os.mkdir(self._name, dir_fd=self._folder)
            for name, most in (("memory.max", memory_bytes), ("pids.max", processes)):
                if most:
                    self._write(name, str(most))
            for name, value in (("memory.swap.max", "0"), ("memory.oom.group", "1")):
                with suppress(OSError):  # some kernels lack it
                    self._write(name, value)
            self._entry = self._open("cgroup.procs", os.O_WRONLY)
            self._events = self._open("memory.events", os.O_RDONLY)
        except OSError:
            self.remove()
            raise

    def enter(self) -> None:
        """Move this process and its future children into the group."""
        os.write(self._entry, b"0")

    @property
    def ran_out(self) -> bool:
        """Whether the kernel killed one of its processes for lack of memory."""
        lines = os.pread(self._events, 4096, 0).decode().splitlines()
        return any(line.split()[0] == "oom_kill" and line.split()[1] != "0" for line in lines)

    def remove(self) -> None:
        """Remove the group after its processes have ended."""
        with suppress(OSError):
            os.rmdir(self._name, dir_fd=self._folder)
        for file in (self._folder, self._entry, self._events):
            if file >= 0:
                os.close(file)

    def _open(self, name: str, flags: int) -> int:
        return os.open(f"{self._name}/{name}", flags | os.O_CLOEXEC, dir_fd=self._folder)

    def _write(self, name: str, value: str) -> None:
        with open(self._open(name, os.O_WRONLY), "w") as file:
            file.write(value)


def make_group(memory_bytes: int, processes: int) -> ControlGroup | None:
    """Create a sibling group if possible; remove stale groups of killed keepers."""
    for version, own in groups("memory"):
        if version == 2:
            beside = own.parent if (own.parent / "cgroup.procs").exists() else own
            with suppress(OSError):
                if {"memory", "pids"} <= {*(beside / "cgroup.subtree_control").read_text().split()}:
                    for left in beside.glob(f"{GROUPS}*"):
                        with suppress(OSError):  # it has processes
                            left.rmdir()
                    return ControlGroup(beside, memory_bytes, processes)
            return None
    return None
