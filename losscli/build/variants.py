"""The variants of a library that a wheel holds, by what they need.

``liblosscli_mse_cpu.x86-64-v3.so`` needs that level of x86-64, ``liblosscli_torch.torch-2.13.so``
that torch, ``liblosscli_mse_cuda.cuda-13.so`` that major version of CUDA.
"""

import os
import platform
import re
from pathlib import Path

from .nvcc import parse_version
from .targets import CPU, TORCH, Target

LEVELS = {
    "x86_64": {
        "x86-64-v4": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
        "x86-64-v3": {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"},
        "x86-64-v2": {"cx16", "lahf_lm", "popcnt", "pni", "ssse3", "sse4_1", "sse4_2"},
    },
    "aarch64": {"armv8-a": {"fp", "asimd"}},
}
"""The levels of each architecture, best first, with the flags of /proc/cpuinfo that each adds."""

_RELEASED = re.compile(r"(\d+)\.(\d+)\.\d+(\+cpu|\+cu\d+)?")


def cpu_levels(
    cpuinfo: Path = Path("/proc/cpuinfo"), machine: str = platform.machine()
) -> list[str]:
    """Return the levels that this CPU runs, best first."""
    try:
        found = re.search(r"^(?:flags|Features)\s*:(.*)$", cpuinfo.read_text(), re.MULTILINE)
    except OSError:
        found = None
    flags = set(found[1].split()) if found else set()
    levels = [*LEVELS.get(machine, {}).items()]
    return [
        level
        for place, (level, _) in enumerate(levels)
        if set().union(*(added for _, added in levels[place:])) <= flags
    ]


def torch_variant(version: str) -> str | None:
    """Return ``torch-2.13``, or None for a build that is no release: its ABI may differ."""
    found = _RELEASED.fullmatch(version)
    return f"torch-{found[1]}.{found[2]}" if found else None


def cuda_variant(version: str | None) -> str | None:
    """Return ``cuda-13`` for ``13.0``."""
    found = parse_version(version)
    return f"cuda-{found[0]}" if found else None


def runnable(target: Target, torch: str, cuda: str | None) -> list[str]:
    """Return the variants of a library that run here, best first."""
    if target.part == TORCH:
        found = torch_variant(torch)
    elif target.device == CPU:
        return cpu_levels()
    else:
        found = cuda_variant(cuda)
    return [found] if found else []


def glibc() -> tuple[int, ...]:
    """Return glibc's version; (0, 0) for another C library."""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (OSError, ValueError):
        return (0, 0)
    return as_numbers(version) if name == "glibc" else (0, 0)


def as_numbers(version: str) -> tuple[int, ...]:
    """Return ``(2, 34)`` for ``2.34``."""
    return tuple(int(number) for number in re.findall(r"\d+", version)) or (0, 0)
