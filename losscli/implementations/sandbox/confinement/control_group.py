"""A control group (version 2) for the processes of a worker, if one can be made.

It is a sibling of this process's group, because a group with processes cannot have limited
children. Root can make one, and a user in a delegated systemd session. It also counts unmapped
memory.
"""

import os
from contextlib import suppress
from pathlib import Path

from losscli.machine.kernel_files import groups

NAME = "losscli-"
"""The prefix of group names."""
_SETTINGS = {"memory.swap.max": "0", "memory.oom.group": "1"}
"""Further settings, if the kernel has them."""


class ControlGroup:
    """A group held by open files, which workers cannot open; OSError if it cannot be created."""

    def __init__(self, beside: Path, memory_bytes: int, processes: int) -> None:
        self._folder = os.open(beside, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._name = f"{NAME}{os.getpid()}"
        self._entry = self._events = -1
        try:
            os.mkdir(self._name, dir_fd=self._folder)
            if memory_bytes:
                self._write("memory.max", str(memory_bytes))
            if processes:
                self._write("pids.max", str(processes))
            for name, value in _SETTINGS.items():
                with suppress(OSError):
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
        file = self._open(name, os.O_WRONLY)
        try:
            os.write(file, value.encode())
        finally:
            os.close(file)


def make(memory_bytes: int, processes: int) -> ControlGroup | None:
    """Create a sibling group if possible; remove stale groups of killed keepers."""
    for version, own in groups("memory"):
        if version == 2:
            beside = own.parent if (own.parent / "cgroup.procs").exists() else own
            with suppress(OSError):
                control = (beside / "cgroup.subtree_control").read_text().split()
                if {"memory", "pids"} <= {*control}:
                    for left in beside.glob(f"{NAME}*"):
                        with suppress(OSError):  # it has processes
                            left.rmdir()
                    return ControlGroup(beside, memory_bytes, processes)
            return None
    return None
