"""The memory of a device: free bytes, cache sizes, and out-of-memory errors."""

from __future__ import annotations

import re

from losscli.machine import kernel_files

DEFAULT_CACHE_BYTES = 32 * 2**20
"""Last-level cache of a CPU that does not say how large its own is."""


def free_bytes(device: str) -> int:
    """Return how many bytes can be allocated on a device now."""
    if device == "cpu":
        return min([_meminfo("MemAvailable"), *_cgroup_free()])
    import torch

    unused, _ = torch.cuda.mem_get_info(device)
    cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(unused + cached)


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether an allocator ran out; torch's CPU allocator says so only in its message."""
    import torch

    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)


def cache_bytes(device: str) -> int:
    """Return the size of a device's last-level cache."""
    if device == "cpu":
        return cpu_cache_bytes()
    import torch

    return int(torch.cuda.get_device_properties(device).L2_cache_size)


def cpu_cache_bytes() -> int:
    """Return the size of the CPU's largest cache."""
    sizes = [DEFAULT_CACHE_BYTES]
    for file in (kernel_files.SYS / "devices/system/cpu/cpu0/cache").glob("index*/size"):
        match = re.fullmatch(r"(\d+)([KMG]?)", file.read_text().strip())
        if match:
            sizes.append(int(match[1]) * {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}[match[2]])
    return max(sizes[1:] or sizes)


def memory_bytes() -> int:
    """Return how much memory the host has."""
    return _meminfo("MemTotal")


def _meminfo(key: str) -> int:
    """Read a line of /proc/meminfo, in bytes."""
    match = re.search(
        rf"^{key}:\s+(\d+) kB", (kernel_files.PROC / "meminfo").read_text(), re.MULTILINE
    )
    assert match, f"/proc/meminfo has no {key}"
    return int(match[1]) * 1024


def _cgroup_free() -> list[int]:
    """Return what each memory limit that this process lives under leaves, version 2 and 1.

    A container sees its own group at the root of the mount, whatever path the kernel names. So
    every ancestor is read and missing ones are ignored.
    """
    free: list[int] = []
    try:
        lines = (kernel_files.PROC / "self/cgroup").read_text().splitlines()
    except OSError:
        return free
    root = kernel_files.SYS / "fs/cgroup"
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            base, limit, usage, cached = root, "memory.max", "memory.current", "inactive_file"
        elif "memory" in controllers.split(","):
            base, cached = root / "memory", "total_inactive_file"
            limit, usage = "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        folder = base / path.lstrip("/")
        for group in [folder, *folder.parents]:
            if not group.is_relative_to(base):
                break
            try:
                most = int((group / limit).read_text())
                used = int((group / usage).read_text())
                stat = (group / "memory.stat").read_text()
            except (OSError, ValueError):  # not there, or "max"
                continue
            match = re.search(rf"^{cached} (\d+)$", stat, re.MULTILINE)
            reclaimable = int(match[1]) if match else 0
            free.append(max(most - used + reclaimable, 0))
    return free
