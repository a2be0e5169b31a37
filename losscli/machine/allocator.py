"""Peak memory of calls, and processes that keep freed memory.

By default glibc returns large freed blocks, so a formula with temporaries pays for page faults in
each call. A long-running program eventually keeps them, and so do processes that measure.
"""

import contextlib
import ctypes
import os
import platform
import resource
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path

from losscli.machine.pytorch import torch

TOP_PAD = "MALLOC_TOP_PAD_"
KEEPING: dict[str, str] = {
    "MALLOC_MMAP_THRESHOLD_": "4000000000",
    "MALLOC_TRIM_THRESHOLD_": "8000000000",
    TOP_PAD: "1000000000",
}
SMALL_PAD = {TOP_PAD: "1000000"}
"""The setting under a memory limit, where unneeded memory counts."""
KEEPS, DEFAULT = "keeps freed memory", "default"


def unsettable() -> str:
    """Return why a new process's allocator cannot be configured, or ``""``."""
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
    """Return the environment of such a process, or of another."""
    own = {name: value for name, value in os.environ.items() if KEEPING.get(name) != value}
    return own | KEEPING if keeps else own


def fresh_bytes() -> int:
    """Return the bytes of pages that this process has got so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt * resource.getpagesize()


STEADY_CALLS = 2
FRESH_CALLS = 16
FRESH_CALLS_SECONDS = 2.0
FRESH_BYTES = 2**20
"""A process that keeps freed memory is warm after this many calls in a row with fewer fresh bytes
than this, or after this many calls or seconds."""


def settle(
    measure: Callable[[], float], clock: Callable[[], int], fresh_bytes: Callable[[], int]
) -> list[float]:
    """Measure until calls reuse freed blocks; return the seconds."""
    start, steady = clock(), 0
    seconds: list[float] = []
    while steady < STEADY_CALLS and len(seconds) < FRESH_CALLS:
        before = fresh_bytes()
        seconds.append(measure())
        steady = steady + 1 if fresh_bytes() - before < FRESH_BYTES else 0
        if (clock() - start) * 1e-9 >= FRESH_CALLS_SECONDS:
            break
    return seconds


def give_back() -> None:
    """Return all freed memory to the system."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


GPU_BLOCK_BYTES = 512
"""Of torch's allocator."""


def measure_peak(call: Callable[[], object], device: str) -> int:
    """Return a call's peak memory, less what was allocated before."""
    if device == "cpu":
        with _silent_stderr(), torch.autograd.profiler.profile(profile_memory=True) as profiler:
            call()
        events = (e for e in profiler.kineto_results.events() if e.name() == "[memory]")
        changes = [event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]
        return int(max(accumulate(changes, initial=0)))
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    call()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before


@contextlib.contextmanager
def _silent_stderr() -> Iterator[None]:
    kept = os.dup(2)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def used_bytes(device: str) -> int:
    """Return the bytes allocated on a GPU, or resident on the host."""
    if device != "cpu":
        return torch.cuda.memory_allocated(device)
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
