"""Closes a process in, as far as the kernel offers it: namespaces, Landlock, limits, environment.

Each step that the kernel refuses is left out, and what was reached is told, for a verdict.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import struct
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from losscli.build.plan import STEERING_VARIABLES
from losscli.directories import CACHE_VARIABLE

PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_CLONE_NEWNS, _CLONE_NEWIPC, _CLONE_NEWUSER = 0x00020000, 0x08000000, 0x10000000
_CLONE_NEWPID, _CLONE_NEWNET = 0x20000000, 0x40000000
_MS_REC, _MS_PRIVATE, _MS_NOSUID, _MS_NODEV = 0x4000, 1 << 18, 2, 4
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_WRITE_RIGHTS = {1: 0x1FF2, 2: 0x3FF2, 3: 0x7FF2}
"""The rights by version of Landlock: to write, remove, make, link and truncate, not to read."""
_SCRATCH_BYTES = 4 * 2**30
_OPEN_FILES = 4096

KEPT = (
    *("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "CC", "CXX", "MAX_JOBS"),
    *(
        "CUDA_HOME",
        "CUDA_PATH",
        "CUDA_VISIBLE_DEVICES",
        "CUDA_DEVICE_ORDER",
        "TORCH_CUDA_ARCH_LIST",
    ),
    *("NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "TRITON_PTXAS_PATH"),
    *("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV", "GLIBC_TUNABLES"),
    *("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "MKL_NUM_THREADS", "MALLOC_TOP_PAD_"),
    *("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", CACHE_VARIABLE),
    *("CUDACXX", "CUDAHOSTCXX", *STEERING_VARIABLES),
)
"""The variables of the environment that a candidate gets to see; it may load losscli's own kernels
from the cache."""

PARTS = (
    *("session", "processes", "network", "shared memory", "/proc", "temporary files", "files"),
    *("open files", "memory"),
)
"""All that can be reached; the memory of the host is limited on a CPU alone."""


def environment(scratch: str, given: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a candidate whose files lie in ``scratch``."""
    given = os.environ if given is None else given
    own = {name: given[name] for name in KEPT if name in given}
    cached = {
        name: f"{scratch}/{directory}"
        for name, directory in (
            ("TORCH_EXTENSIONS_DIR", "extensions"),
            ("TORCHINDUCTOR_CACHE_DIR", "inductor"),
            ("TRITON_CACHE_DIR", "triton"),
            ("CUDA_CACHE_PATH", "cuda"),
            ("XDG_CACHE_HOME", "cache"),
            ("HOME", "home"),
            ("TMPDIR", "tmp"),
        )
    }
    # Its pool of compilers would outlive a call.
    return {**own, **cached, "TORCHINDUCTOR_COMPILE_THREADS": "1"}


def forget_start() -> None:
    """Overwrite the command line and the environment that /proc shows of this process."""
    environ = dict(os.environ)
    os.environ.clear()
    os.environ.update(environ)  # C's are copies now
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    first, last, *environment = map(int, fields[45:49])
    command = b"python\0main.py\0"
    if 0 < len(command) <= last - first and environment[0]:
        ctypes.memset(first, 0, last - first)
        ctypes.memmove(first, command, len(command))
        ctypes.memset(environment[0], 0, environment[1] - environment[0])
    sys.argv, sys.orig_argv = ["main.py"], ["python", "main.py"]


def unshare() -> Iterator[str]:
    """Leave the namespaces of the judge; yield what was reached.

    The next child is the first process of its own process namespace: when it ends, the kernel ends
    all others there.
    """
    libc, parts = _libc(), (_CLONE_NEWPID, _CLONE_NEWNS, _CLONE_NEWNET, _CLONE_NEWIPC)
    both = 0
    for part in parts:
        both |= part
    uid, gid = os.getuid(), os.getgid()
    if libc.unshare(both) != 0:
        if libc.unshare(both | _CLONE_NEWUSER) != 0:
            return
        with contextlib.suppress(OSError):
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
            Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    yield from ("processes", "network", "shared memory")


def private_directory(scratch: str) -> str:
    """Return where a private file system is to be mounted: where nothing is hidden by it.

    A name that does not tell of losscli, if there is one.
    """
    for place in ("/srv", "/media", "/mnt", "/opt"):
        with contextlib.suppress(OSError):
            if not os.listdir(place):
                return place
    return scratch


def mount_private(scratch: str) -> Iterator[str]:
    """In new namespaces: mount /proc anew, and an empty file system in memory on ``scratch``."""
    libc = _libc()
    if libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None) != 0:
        return
    if libc.mount(b"proc", b"/proc", b"proc", _MS_NOSUID | _MS_NODEV, None) == 0:
        yield "/proc"
    size = f"size={_SCRATCH_BYTES},mode=700".encode()
    options = _MS_NOSUID | _MS_NODEV
    if libc.mount(b"tmpfs", scratch.encode(), b"tmpfs", options, size) == 0:
        yield "temporary files"
    # Any process may write there, and the next one would read it.
    libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", options, size)


def restrict_writes(scratch: str, device: str) -> Iterator[str]:
    """Let this process and its children write below ``scratch`` and /dev alone, by Landlock.

    CUDA writes to /proc as well.
    """
    libc = _libc()
    version = libc.syscall(_LANDLOCK_CREATE, None, 0, 1)
    if version < 1:
        return
    rights = _WRITE_RIGHTS[min(version, 3)]
    ruleset = libc.syscall(_LANDLOCK_CREATE, struct.pack("=Q", rights), 8, 0)
    if ruleset < 0:
        return
    try:
        for allowed in (scratch, "/dev", *(() if device == "cpu" else ("/proc",))):
            directory = os.open(allowed, os.O_PATH | os.O_CLOEXEC)
            try:
                rule = struct.pack("=Qi", rights, directory)
                if libc.syscall(_LANDLOCK_ADD, ruleset, 1, rule, 0) != 0:
                    return
            finally:
                os.close(directory)
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        if libc.syscall(_LANDLOCK_RESTRICT, ruleset, 0) == 0:
            yield "files"
    finally:
        os.close(ruleset)


def limit_resources(memory_bytes: int, device: str) -> Iterator[str]:
    """Limit open files, core dumps and, on a CPU, the memory that can be written."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    most = min(_OPEN_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    yield "open files"
    if memory_bytes and device == "cpu":  # CUDA reserves addresses for all memory there is
        resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
        yield "memory"


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
