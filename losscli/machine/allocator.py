"""Whether a CPU process keeps freed memory or returns it to the system.

By default glibc returns large freed blocks, so a formula with temporaries pays for page faults in
each call. A long-running program keeps such blocks eventually, and implementations with their own
blocks never pay. For a fair comparison, measuring processes start with settings that keep freed
memory.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform

TOP_PAD = "MALLOC_TOP_PAD_"
"""The variable for memory requested in advance."""
KEEPING: dict[str, str] = {
    "MALLOC_MMAP_THRESHOLD_": "4000000000",
    "MALLOC_TRIM_THRESHOLD_": "8000000000",
    TOP_PAD: "1000000000",
}
"""glibc's environment variables to keep freed memory."""
SMALL_PAD = {TOP_PAD: "1000000"}
"""The setting under a memory limit, where unneeded memory counts."""
KEEPS, DEFAULT = "keeps freed memory", "default"
"""Allocator names in a record."""


def unsettable() -> str:
    """Return why a new process's allocator cannot be configured, or an empty string."""
    if platform.system() != "Linux":
        return f"{platform.system()} has another allocator than glibc's"
    if platform.libc_ver()[0] != "glibc":
        return "the C library is not glibc"
    if "malloc" in os.environ.get("LD_PRELOAD", ""):
        return "LD_PRELOAD replaces glibc's allocator"
    return ""


def keeps() -> bool:
    """Tell whether this process was started to keep freed memory."""
    return all(os.environ.get(name) == KEEPING[name] for name in KEEPING if name != TOP_PAD)


def environment(*, keeps: bool) -> dict[str, str]:
    """Return the environment of a process that keeps freed memory, or does not."""
    own = {name: value for name, value in os.environ.items() if KEEPING.get(name) != value}
    return own | KEEPING if keeps else own


def fresh_bytes() -> int:
    """Return the bytes of pages that the system has given this process so far."""
    import resource  # not on Windows

    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt * resource.getpagesize()


def give_back() -> None:
    """Return all freed memory to the system."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
