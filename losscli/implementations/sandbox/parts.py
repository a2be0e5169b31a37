"""The parts of a worker's isolation that verdicts list and documents explain."""

from collections.abc import Iterable
from typing import NamedTuple


class Part(NamedTuple):
    """A part of the isolation, and how it is made."""

    name: str
    by: str
    without: str
    """How it is made without namespaces; empty if it is then missing."""
    on_cuda: str = ""
    """How it is made on a GPU, if different."""


PARTS = (
    Part("session", "a session", "a session"),
    Part("environment", "cut down by the judge", "cut down by the judge"),
    Part("processes", "a process namespace, its own /proc", ""),
    Part("signals", "a process namespace", "Landlock 6, seccomp"),
    Part("network", "a network namespace", "seccomp"),
    Part("sockets", "seccomp; empty /tmp and /run", "seccomp", "empty /tmp and /run"),
    Part("shared memory", "a namespace, a /dev/shm of its own", "seccomp, Landlock"),
    Part("/proc", "a read-only /proc", "", "a /proc, read-only but for its processes"),
    Part("temporary files", "a file system in memory, empty /tmp, /var/tmp and /run", ""),
    Part("files", "read-only mounts, Landlock", "Landlock"),
    Part("attributes", "read-only mounts", ""),
    Part("devices", "a /dev of its own, Landlock", "Landlock"),
    Part("capabilities", "all dropped", "all dropped"),
    Part("system calls", "seccomp", "seccomp", "seccomp, fewer calls"),
    Part("cache", "empty folders", "Landlock"),
    Part("open files", "RLIMIT_NOFILE", "RLIMIT_NOFILE"),
    Part("file sizes", "RLIMIT_FSIZE", "RLIMIT_FSIZE"),
    Part("memory", "RLIMIT_DATA; a watch", "RLIMIT_DATA; a watch", "a watch"),
    Part("number of processes", "a watch; RLIMIT_NPROC for a user", "a watch"),
)
NAMES = tuple(part.name for part in PARTS)


def missing(reached: Iterable[str]) -> tuple[str, ...]:
    """Return the parts that are missing."""
    return tuple(name for name in NAMES if name not in {*reached})
