"""The machine: its devices, its memory, and what a result must say of it. Torch only on demand."""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from losscli import __version__
from losscli.errors import UnfitError, UsageError

PROC = Path("/proc")
SYS = Path("/sys")

DEFAULT_CACHE_BYTES = 32 * 2**20
"""Last-level cache of a CPU that does not say how large its own is."""


def resolve_device(name: str) -> str:
    """Return ``cpu`` or ``cuda:N`` for ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.

    Raises:
        UsageError: the name is none of these.
        UnfitError: there is no such GPU.
    """
    if name == "cpu":
        return "cpu"
    match = re.fullmatch(r"auto|cuda(?::(\d+))?", name)
    if not match:
        raise UsageError(f"device must be auto, cpu, cuda or cuda:N, but is '{name}'")
    import torch

    count = torch.cuda.device_count()
    if name == "auto" and count == 0:
        return "cpu"
    if count == 0:
        why = "finds no GPU" if torch.version.cuda else f"{torch.__version__} is built without CUDA"
        raise UnfitError(f"device {name} needs a GPU, but torch {why}; use --device cpu")
    index = int(match[1] or 0)
    if index >= count:
        there = "cuda:0" if count == 1 else f"cuda:0 to cuda:{count - 1}"
        raise UnfitError(f"there is no {name}; this machine has {there}")
    return f"cuda:{index}"


def describe(device: str) -> dict[str, Any]:
    """Return what a result depends on, flat and fit for JSON; None where it is not known."""
    import torch

    facts: dict[str, Any] = {
        "losscli": __version__,
        "commit": commit(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "torch_cuda": torch.version.cuda,
        "compiler": _compiler(),
        "os": platform.platform(),
        "cpu": cpu_model(),
        "cpu_cores": core_count(),
        "cpu_cache_bytes": cpu_cache_bytes(),
        "memory_bytes": _meminfo("MemTotal"),
        "threads": torch.get_num_threads(),
        "device": device,
        "gpu": None,
        "gpu_sms": None,
        "gpu_memory_bytes": None,
        "gpu_cache_bytes": None,
        "gpu_capability": None,
        "gpu_driver": None,
    }
    if device != "cpu":
        gpu = torch.cuda.get_device_properties(device)
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        facts |= {
            "gpu": gpu.name,
            "gpu_sms": gpu.multi_processor_count,
            "gpu_memory_bytes": gpu.total_memory,
            "gpu_cache_bytes": gpu.L2_cache_size,
            "gpu_capability": f"{gpu.major}.{gpu.minor}",
            "gpu_driver": _first_line(query),
        }
    return facts


def set_threads(count: int) -> None:
    """Have torch, and with it losscli's kernels, use so many threads of the CPU."""
    import torch

    torch.set_num_threads(count)


def command_in(variable: str, environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return the words of a command in an environment variable; none where it is not set.

    Raises:
        UnfitError: a quote is not closed.
    """
    text = environ.get(variable, "").strip()
    try:
        return tuple(shlex.split(text))
    except ValueError:
        raise UnfitError(
            f"{variable} is not a command: unclosed quote or trailing backslash in [{text}]. "
            f"Correct or unset {variable}."
        ) from None


def free_bytes(device: str) -> int:
    """Return how many bytes can be allocated on a device now."""
    if device == "cpu":
        return min([_meminfo("MemAvailable"), *_cgroup_free()])
    import torch

    unused, _ = torch.cuda.mem_get_info(device)
    cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(unused + cached)


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether an allocator gave up; torch's CPU allocator says so in its message only."""
    import torch

    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)


def is_broken(device: str) -> bool:
    """Tell whether a GPU gives this process nothing any more, as after a kernel that went astray.

    What broke it is then said to every call; other errors are said once.
    """
    if device == "cpu":
        return False
    import torch

    try:
        torch.cuda.synchronize(device)
    except RuntimeError:
        return True
    return False


def cache_bytes(device: str) -> int:
    """Return the size of a device's last-level cache."""
    if device == "cpu":
        return cpu_cache_bytes()
    import torch

    return int(torch.cuda.get_device_properties(device).L2_cache_size)


def core_count() -> int:
    """Return how many cores this process may use; all of them, where the system does not say."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_model() -> str | None:
    """Return the CPU's name as the kernel tells it."""
    try:
        text = (PROC / "cpuinfo").read_text()
    except OSError:
        return platform.processor() or None
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return match[1].strip() if match else platform.processor() or None


def cpu_cache_bytes() -> int:
    """Return the size of the CPU's largest cache."""
    sizes = [DEFAULT_CACHE_BYTES]
    for file in (SYS / "devices/system/cpu/cpu0/cache").glob("index*/size"):
        match = re.fullmatch(r"(\d+)([KMG]?)", file.read_text().strip())
        if match:
            sizes.append(int(match[1]) * {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}[match[2]])
    return max(sizes[1:] or sizes)


def _meminfo(key: str) -> int:
    """Read a line of /proc/meminfo, in bytes."""
    match = re.search(rf"^{key}:\s+(\d+) kB", (PROC / "meminfo").read_text(), re.MULTILINE)
    assert match, f"/proc/meminfo has no {key}"
    return int(match[1]) * 1024


def _cgroup_free() -> list[int]:
    """Return what each memory limit that this process lives under leaves, version 2 and 1.

    A container sees its own group at the root of the mount, whatever path the kernel names, so
    every ancestor is looked at and those that are not there are passed over.
    """
    free: list[int] = []
    try:
        lines = (PROC / "self/cgroup").read_text().splitlines()
    except OSError:
        return free
    root = SYS / "fs/cgroup"
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


def commit() -> str | None:
    """Return the commit of the working directory, ``+`` after it where files were changed."""
    head = _first_line(["git", "rev-parse", "--short=12", "HEAD"])
    changed = head and _first_line(["git", "status", "--porcelain", "--untracked-files=no"])
    return f"{head}+" if changed else head


def _compiler() -> str | None:
    """Return what the C++ compiler says it is, or None."""
    try:
        return _first_line([*(command_in("CXX") or ["c++"]), "--version"])
    except UnfitError:
        return None


def _first_line(command: list[str]) -> str | None:
    """Run a program and return the first line it prints, or None."""
    if not shutil.which(command[0]):
        return None
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return next(iter(done.stdout.splitlines()), None)
