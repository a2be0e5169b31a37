"""The memory of calls: the peak by PyTorch's count, and what a process keeps."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from resource import getpagesize

from losscli.machine.allocator import give_back

_GPU_BLOCK_BYTES = 512
"""The smallest block of PyTorch's allocator."""


def measure_peak(call: Callable[[], object], device: str) -> int:
    """Return a call's peak memory beyond what was allocated before."""
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
    kept = os.dup(2)
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(sink)


@dataclass(frozen=True)
class Footprint:
    """A device's memory use, and what counts as a change."""

    device: str
    operand_bytes: int
    """Bytes of the largest operand of the calls."""

    def settle(self) -> None:
        """Return the host's free memory to the system, so that kept memory shows."""
        if self.device == "cpu":
            give_back()

    def used(self) -> int:
        """Return the bytes allocated on a GPU, or resident on the host."""
        if self.device != "cpu":
            import torch

            return torch.cuda.memory_allocated(self.device)
        return int(Path("/proc/self/statm").read_text().split()[1]) * getpagesize()

    def noise(self, calls: int) -> int:
        """Return insignificant growth: below a GPU block, or a quarter operand, per call."""
        least = self.operand_bytes // 4 if self.device == "cpu" else _GPU_BLOCK_BYTES - 1
        return calls * least
