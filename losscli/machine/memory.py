"""A device's memory."""

import re
from collections.abc import Iterator

from losscli.machine import kernel_files
from losscli.machine.pytorch import torch

DEFAULT_CACHE_BYTES = 32 * 2**20
"""The assumed last-level cache of a CPU that does not report its own."""


def free_bytes(device: str) -> int:
    """Return how many bytes can be allocated now."""
    if device == "cpu":
        return min([_meminfo("MemAvailable"), *(left for _, left in _limits())])
    unused, _ = torch.cuda.mem_get_info(device)
    cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(unused + cached)


def most_bytes(device: str) -> int:
    """Return an upper bound of free bytes, without using GPU memory."""
    if device == "cpu":
        return free_bytes(device)
    return int(torch.cuda.get_device_properties(device).total_memory)


_OUT_OF_MEMORY = re.compile(
    r"DefaultCPUAllocator|CUDA (driver )?error: out of memory|Triton Error \[CUDA\]: out of memory"
    r"|(CUBLAS_STATUS|CUDNN_STATUS|CUSPARSE_STATUS|CUFFT)_ALLOC_FAILED"
    r"|Cuda failure 2 'out of memory'"
)
"""Messages that mean out of memory: torch's CPU allocator, and allocations on a GPU outside torch's
allocator, such as new streams, libraries' first calls, Triton's launches, and NCCL."""


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether an error means out of memory."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and bool(_OUT_OF_MEMORY.search(str(error)))


def cache_bytes(device: str) -> int:
    """Return the size of a device's last-level cache."""
    if device != "cpu":
        return int(torch.cuda.get_device_properties(device).L2_cache_size)
    files = (kernel_files.SYS / "devices/system/cpu/cpu0/cache").glob("index*/size")
    matches = (re.fullmatch(r"(\d+)([KMG]?)", file.read_text().strip()) for file in files)
    scales = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
    return max((int(m[1]) * scales[m[2]] for m in matches if m), default=DEFAULT_CACHE_BYTES)


def memory_bytes() -> int:
    """Return the host's memory size."""
    return _meminfo("MemTotal")


def _meminfo(key: str) -> int:
    return kernel_files.numbers(kernel_files.PROC / "meminfo")[key] * 1024


def limit_bytes() -> int | None:
    """Return the tightest memory limit on this process, or None."""
    return min((most for most, _ in _limits() if most < memory_bytes()), default=None)


def _limits() -> Iterator[tuple[int, int]]:
    for version, group in kernel_files.groups("memory"):
        if version == 2:
            limit, usage, cached = "memory.max", "memory.current", "inactive_file"
        else:
            limit, usage = "memory.limit_in_bytes", "memory.usage_in_bytes"
            cached = "total_inactive_file"
        try:
            most = int((group / limit).read_text())
            used = int((group / usage).read_text())
            reclaimable = kernel_files.numbers(group / "memory.stat").get(cached, 0)
        except (OSError, ValueError):  # not there, or "max"
            continue
        yield most, max(most - used + reclaimable, 0)
