"""The processes of this command, and their CPU time."""

import os
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from losscli.machine import kernel_files

_NAME = b"losscli"


class _Stat(NamedTuple):
    parent: int
    ticks: int
    """CPU time, including ended children."""


def is_ours(pid: int) -> bool:
    """Tell whether a process belongs to this command."""
    return _first() in ancestors(pid)


def own_seconds() -> float:
    """Return this command's CPU time, including ended processes."""
    numbers = (each.name for each in kernel_files.PROC.glob("[0-9]*"))
    found = {int(pid): process for pid in numbers if (process := _read(pid))}
    first = _first()

    def is_below(pid: int) -> bool:
        while pid != first and pid in found:
            pid = found[pid].parent
        return pid == first

    ticks = sum(process.ticks for pid, process in found.items() if is_below(pid))
    return ticks / os.sysconf("SC_CLK_TCK")


def _first() -> int:
    own, *above = ancestors(os.getpid())
    return [own, *takewhile(_is_losscli, above)][-1]


def children(pid: int) -> list[int]:
    """Return a process's children; none if /proc is another namespace's."""
    if not (kernel_files.PROC / "self").exists():
        return []
    threads: list[Path] = []
    with suppress(OSError):  # it has ended meanwhile
        threads = [*(kernel_files.PROC / str(pid) / "task").glob("*/children")]
    if threads:
        found: list[int] = []
        for each in threads:
            with suppress(OSError):
                found += map(int, each.read_text().split())
        return found
    # For a kernel built without these files.
    numbers = [int(each.name) for each in kernel_files.PROC.glob("[0-9]*")]
    return [each for each in numbers if (known := _read(str(each))) and known.parent == pid]


def ancestors(pid: int) -> list[int]:
    """Return a process and its ancestors."""
    found = []
    while pid > 0 and pid not in found:
        found.append(pid)
        process = _read(str(pid))
        pid = process.parent if process else 0
    return found


def _read(pid: str) -> _Stat | None:
    with suppress(OSError):
        fields = (kernel_files.PROC / pid / "stat").read_bytes().rpartition(b")")[2].split()
        return _Stat(int(fields[1]), sum(map(int, fields[11:15])))
    return None


def _is_losscli(pid: int) -> bool:
    try:
        arguments = (kernel_files.PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    if any(each.rpartition(b"/")[2] == _NAME for each in arguments[:2]):
        return True
    module = arguments[arguments.index(b"-m") + 1 :][:1] if b"-m" in arguments else []
    return any(each.partition(b".")[0] == _NAME for each in module)
