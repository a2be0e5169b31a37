"""Which processes of this machine are those of this command."""

from __future__ import annotations

import os
from pathlib import Path

from losscli.machine import kernel_files

_NAME = b"losscli"


def is_ours(pid: int) -> bool:
    """Tell whether a process belongs to this command: it began it, or was begun by it."""
    return _first() in _line(pid)


def _first() -> int:
    """Return the process of the command: this one, or the highest losscli above it."""
    ours = os.getpid()
    for parent in _line(ours)[1:]:
        if not _is_losscli(parent):
            break
        ours = parent
    return ours


def _line(pid: int) -> list[int]:
    """Return a process and those that began it, one after the other."""
    found = []
    while pid > 0 and pid not in found:
        found.append(pid)
        pid = _parent(pid)
    return found


def _parent(pid: int) -> int:
    """Return the process that began another; 0 where it is unknown."""
    try:
        told = (kernel_files.PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return 0
    return int(told.rpartition(b")")[2].split()[1])


def _is_losscli(pid: int) -> bool:
    """Tell whether a process runs losscli, by its command line."""
    try:
        arguments = (kernel_files.PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(Path(os.fsdecode(each)).name.encode() == _NAME for each in arguments[:2]) or (
        b"-m" in arguments and any(each.startswith(_NAME) for each in arguments)
    )
