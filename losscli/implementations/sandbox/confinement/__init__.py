"""Isolates a worker by steps that overlap on purpose; one that the kernel refuses is skipped."""

import errno
import os
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import losscli
from losscli.build.plan import csrc_root
from losscli.errors import UnfitError
from losscli.implementations.sandbox.confinement import landlock, limits, mounts, seccomp
from losscli.implementations.sandbox.confinement.namespaces import drop_capabilities, leave
from losscli.implementations.sandbox.isolation_parts import NAMES

NIXOS_DRIVER = "/run/opengl-driver"
SCRATCH_PART = 4
"""The divisor of a worker's memory limit for each of two file systems in memory."""
MPS_VARIABLE, MPS_PIPES = "CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"
"""The variable and usual folder by which programs share a GPU with MPS."""


@dataclass(frozen=True)
class Wanted:
    """The requested isolation of a worker; a candidate can read it from memory."""

    device: str
    memory_bytes: int
    processes: int
    scratch: str
    """The parent of the worker's folder if it has no private file system."""
    environ: Mapping[str, str]
    shown: Sequence[str]
    """Paths needed in addition to those of Python and the compilers."""
    hidden: Sequence[str]


class Walls:
    """The isolation of one worker; the keeper makes the first parts and the worker the rest."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self._on_cpu = wanted.device == "cpu"
        self.apart = self._has_files = self._has_users = False
        """Whether it has its own namespaces."""
        self._reached = {"session", "environment"}
        self.scratch = ""

    @property
    def reached(self) -> list[str]:
        """The parts that are in place."""
        return [name for name in NAMES if name in self._reached]

    def leave(self) -> None:
        """Leave the judge's namespaces; the next child starts in new ones."""
        self.apart, self._has_users = leave()
        if self.apart:
            self._reached |= {"signals", "network"}

    def furnish(self, prefix: str) -> None:
        """Create the worker's files; ``prefix`` starts its folder's name on a shared disk."""
        wanted = self.wanted
        pipes = wanted.environ.get(MPS_VARIABLE, MPS_PIPES)
        shares = not self._on_cpu and os.path.isdir(pipes)
        needed = [*self._needed(), *([pipes] if shares else [])]
        bytes = min(mounts.SCRATCH_BYTES, (wanted.memory_bytes or sys.maxsize) // SCRATCH_PART)
        mounted = mounts.mount(wanted.device, bytes, needed, wanted.hidden) if self.apart else None
        if mounted is None:
            self.scratch = tempfile.mkdtemp(prefix=prefix, dir=wanted.scratch)
            return
        self.scratch, read_only, proc = mounted
        self._has_files = True
        self._reached |= {"shared memory", "temporary files", "devices", "cache"}
        self._reached |= {"files", "attributes"} if read_only else set()
        self._reached |= {"processes", "/proc"} if proc else set()
        self._reached |= {"sockets"} if not self._on_cpu and not shares else set()

    def give_up(self) -> None:
        """Drop rights for good; OSError if a required file would become unreadable."""
        folders = [path for path in sys.path if os.path.isdir(path)]
        with suppress(OSError):
            drop_capabilities()
            self._reached.add("capabilities")
        for path in folders:
            if not os.access(path, os.R_OK | os.X_OK):
                told = "without capabilities root may not read what is another user's"
                raise PermissionError(errno.EACCES, told, path)
        with suppress(OSError):
            self._lock_files()
        with suppress(OSError):
            self._refuse_calls()
        wanted = self.wanted
        limits.set_limits(
            wanted.memory_bytes, wanted.processes, data=self._on_cpu, own_users=self._has_users
        )
        self._reached |= {"open files", "number of processes"}
        self._reached |= {"memory", "file sizes"} if wanted.memory_bytes else set()

    def _needed(self) -> Iterator[str]:
        yield from (sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix)
        yield from filter(os.path.isabs, sys.path)
        yield str(Path(losscli.__file__).parent)
        with suppress(UnfitError):
            yield str(csrc_root())
        for value in self.wanted.environ.values():
            for part in filter(os.path.isabs, value.split(os.pathsep)):
                yield part
                if os.path.basename(part) == "bin":
                    yield os.path.dirname(part)
        yield from (*self.wanted.shown, NIXOS_DRIVER)

    def _lock_files(self) -> None:
        writable = [self.scratch, *mounts.devices(self.wanted.device)]
        writable += ["/dev/shm"] if self._has_files else []
        writable += [] if self._on_cpu else ["/proc"]  # CUDA names its threads there
        hidden = () if self._has_files else (*self.wanted.hidden, "/dev")
        version = landlock.restrict(writable, hidden, self._needed())
        self._reached |= {"files", "devices", "cache"}
        self._reached |= {"signals"} if version >= landlock.SCOPES_SINCE else set()

    def _refuse_calls(self) -> None:
        refused = [each for each in seccomp.REFUSED if self._on_cpu or each.on_cuda]
        refused += [] if self.apart else [seccomp.SHARED_MEMORY]
        families = [socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK] if self.apart else []
        families += [] if self._on_cpu else [socket.AF_UNIX]
        seccomp.refuse(seccomp.program(refused, families))
        self._reached |= {"system calls", "network"}
        self._reached |= {"sockets"} if self._on_cpu else set()
        self._reached |= {"shared memory"} if "devices" in self._reached else set()
