"""The allocator of a CPU process: whether it keeps freed memory or returns it to the system.

By default glibc gives a large block back to the system when it is freed, so that each call of a
formula that makes temporaries pays for their page faults anew. A program that runs for long comes
to keep such blocks, and implementations that keep blocks of their own never pay. To compare them,
processes that measure are started with settings by which everything that is freed is kept.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
from collections.abc import Mapping

KEEPING: Mapping[str, str] = {
    "MALLOC_MMAP_THRESHOLD_": "4000000000",
    "MALLOC_TRIM_THRESHOLD_": "8000000000",
    "MALLOC_TOP_PAD_": "1000000000",
}
"""Environment variables of glibc that have a process keep what it frees."""
KEEPS, DEFAULT = "keeps freed memory", "default"
"""What a record calls the allocators."""


def unsettable() -> str:
    """Return why the allocator of a new process cannot be set; empty where it can."""
    if platform.system() != "Linux":
        return f"{platform.system()} has another allocator than glibc's"
    if platform.libc_ver()[0] != "glibc":
        return "the C library is not glibc"
    if "malloc" in os.environ.get("LD_PRELOAD", ""):
        return "LD_PRELOAD replaces glibc's allocator"
    return ""


def keeps() -> bool:
    """Tell whether this process was started to keep what it frees."""
    return all(os.environ.get(name) == value for name, value in KEEPING.items())


def fresh_bytes() -> int:
    """Return the bytes that the system has handed out to this process, page by page, so far."""
    import resource  # not on Windows

    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt * resource.getpagesize()


def give_back() -> None:
    """Give the system all that was freed, so that a process that waits holds nothing."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
