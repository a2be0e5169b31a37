"""The kernel's files about this machine, such as the control groups of this process.

A container sees its own group at the mount's root, whatever path the kernel names, so every
ancestor that exists is read.
"""

import contextlib
import re
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

PROC = Path("/proc")
SYS = Path("/sys")


def text_of(path: Path) -> str:
    """Return a file's text; empty if it cannot be read."""
    with contextlib.suppress(OSError):
        return path.read_text()
    return ""


def numbers(path: Path) -> dict[str, int]:
    """Return a file's numbers by name, such as ``MemTotal: 8 kB``; OSError if it is not there."""
    found = re.findall(r"^(\w+):?\s+(\d+)", path.read_text(), re.MULTILINE)
    return {name: int(number) for name, number in found}


def first_core() -> list[str]:
    """Return the lines about the first core, or none; the kernel is slow to write those of all."""
    with contextlib.suppress(OSError), (PROC / "cpuinfo").open() as file:
        return [line.strip() for line in takewhile(str.strip, file)]
    return []


def groups(controller: str) -> Iterator[tuple[int, Path]]:
    """Yield version and folder of each group of ``memory`` or ``cpu``, innermost first."""
    root = SYS / "fs/cgroup"
    for line in text_of(PROC / "self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            version, base = 2, root
        elif controller in controllers.split(","):
            version, base = 1, root / controller
        else:
            continue
        folder = base / path.lstrip("/")
        for group in (folder, *folder.parents):
            if group.is_relative_to(base):
                yield version, group


def core_quota() -> float | None:
    """Return the tightest limit on cores, or None."""
    quotas = []
    for version, group in groups("cpu"):
        # Missing, "max" or, in version 1, -1.
        with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
            if version == 2:
                quota, period = map(int, (group / "cpu.max").read_text().split())
            else:
                quota = int((group / "cpu.cfs_quota_us").read_text())
                period = int((group / "cpu.cfs_period_us").read_text())
            if quota > 0:
                quotas.append(quota / period)
    return min(quotas, default=None)
