"""The paths of the kernel's files about the machine."""

from __future__ import annotations

from pathlib import Path

PROC = Path("/proc")
SYS = Path("/sys")
