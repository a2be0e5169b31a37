"""The parts of a worker's isolation, as verdicts list them."""

from collections.abc import Iterable
from typing import NamedTuple


class IsolationPart(NamedTuple):
    """A part of the isolation, and how it is made."""

    name: str
    by: str
    without: str
    """The same without namespaces; empty if it is then missing."""
    on_cuda: str = ""
    """The same on a GPU, if different."""


PARTS = (
    IsolationPart("session", "a separate session", "a separate session"),
    IsolationPart("environment", "reduced by the judge", "reduced by the judge"),
    IsolationPart("processes", "a process namespace, its own /proc", ""),
    IsolationPart("signals", "a process namespace", "Landlock (Linux 6.12), seccomp"),
    IsolationPart("network", "a network namespace", "seccomp"),
    IsolationPart("sockets", "seccomp; empty /tmp and /run", "seccomp", "empty /tmp and /run"),
    IsolationPart("shared memory", "a namespace, its own /dev/shm", "seccomp, Landlock"),
    IsolationPart("/proc", "a read-only /proc", "", "a /proc, read-only except for its processes"),
    IsolationPart("temporary files", "a file system in memory, empty /tmp, /var/tmp and /run", ""),
    IsolationPart("files", "read-only mounts, Landlock", "Landlock"),
    IsolationPart("attributes", "read-only mounts", ""),
    IsolationPart("devices", "its own /dev, Landlock", "Landlock"),
    IsolationPart("capabilities", "all dropped", "all dropped"),
    IsolationPart("system calls", "seccomp", "seccomp", "seccomp, fewer calls"),
    IsolationPart("cache", "empty folders", "Landlock"),
    IsolationPart("open files", "RLIMIT_NOFILE", "RLIMIT_NOFILE"),
    IsolationPart("file sizes", "RLIMIT_FSIZE", "RLIMIT_FSIZE"),
    IsolationPart("memory", "RLIMIT_DATA; a watchdog", "RLIMIT_DATA; a watchdog", "a watchdog"),
    IsolationPart("number of processes", "a watchdog; RLIMIT_NPROC for a user", "a watchdog"),
)
NAMES = tuple(part.name for part in PARTS)


def missing(reached: Iterable[str]) -> tuple[str, ...]:
    """Return the parts that are missing."""
    return tuple(name for name in NAMES if name not in {*reached})
