"""The peak memory of a call, as counted by PyTorch's own allocators."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def measure_peak(call: Callable[[], object], device: str) -> int:
    """Return the most bytes that a call holds at once beyond what was there before."""
    return _cpu_peak(call) if device == "cpu" else _cuda_peak(call, device)


def _cuda_peak(call: Callable[[], object], device: str) -> int:
    import torch

    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    call()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before


def _cpu_peak(call: Callable[[], object]) -> int:
    """Sum the allocations and frees of the CPU allocator that torch's profiler saw."""
    from torch.autograd.profiler import profile

    with _silent_stderr(), profile(profile_memory=True) as profiler:
        call()
    events = profiler.kineto_results.events()
    allocations = [
        (event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]"
    ]
    held = peak = 0
    for _, count in sorted(allocations, key=lambda allocation: allocation[0]):
        held += count
        peak = max(peak, held)
    return peak


@contextmanager
def _silent_stderr() -> Iterator[None]:
    """Discard what torch's profiler writes to the file descriptor when it starts and stops."""
    kept = os.dup(2)
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(sink)
