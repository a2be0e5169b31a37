"""Restricts a process's access to files, sockets and signals with Landlock, without namespaces."""

import os
import stat
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from losscli.implementations.sandbox.confinement import kernel

_EXECUTE, _WRITE, _READ, _LIST = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_CHANGE_FOLDERS = 0x1FF0
"""Removing, and creating files of all kinds."""
_REFER, _TRUNCATE, _DEVICE_IOCTL = 1 << 13, 1 << 14, 1 << 15
_WRITES = {1: _WRITE | _CHANGE_FOLDERS, 2: _REFER, 3: _TRUNCATE, 5: _DEVICE_IOCTL}
"""Rights to write, by the version that introduced them."""
_READS = _EXECUTE | _READ | _LIST
_OF_FILES = _EXECUTE | _WRITE | _READ | _TRUNCATE | _DEVICE_IOCTL
"""What a rule on a file, not a folder, may allow."""
_TCP = {4: 0x3}
"""Listening and connecting."""
SCOPES_SINCE = 6
_SCOPES = {SCOPES_SINCE: 0x3}
"""Abstract sockets and signals to processes outside the limits."""
_VERSION, _PATH_BENEATH = 1, 1


def restrict(writable: Iterable[str], hidden: Iterable[str], needed: Iterable[str]) -> int:
    """Restrict the files that this process and its children may read and write.

    Folders above ``hidden`` cannot be listed, as rules on folders include all below. ``needed``
    paths inside hidden folders stay readable. OSError if Landlock is unavailable.
    """
    found = kernel.call("landlock_create_ruleset", None, 0, _VERSION)
    writes, tcp, scopes = (
        sum(right for since, right in rights.items() if since <= found)
        for rights in (_WRITES, _TCP, _SCOPES)
    )
    hidden = [path for each in hidden if os.path.exists(path := os.path.realpath(each))]
    needed = [path for path in map(os.path.realpath, needed) if _above(path) & {*hidden}]
    hidden = [each for each in hidden if not _above(each) & {*hidden}]
    reads = _READS if hidden else 0
    size = 24 if found >= 6 else 16 if found >= 4 else 8
    attributes = struct.pack("=QQQ", writes | reads, tcp, scopes)[:size]
    ruleset = kernel.call("landlock_create_ruleset", attributes, size, 0)
    try:
        for path in writable:
            _allow(ruleset, path, writes | reads)
        for path in (*_around(hidden), *needed):
            _allow(ruleset, path, reads)
        kernel.call("landlock_restrict_self", ruleset, 0)
    finally:
        os.close(ruleset)
    return found


def _allow(ruleset: int, path: str, rights: int) -> None:
    with suppress(FileNotFoundError, PermissionError):
        place = os.open(path, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            if not stat.S_ISDIR(os.fstat(place).st_mode):
                rights &= _OF_FILES
            if rights:
                rule = struct.pack("=Qi", rights, place)
                kernel.call("landlock_add_rule", ruleset, _PATH_BENEATH, rule, 0)
        finally:
            os.close(place)


def _above(path: str) -> set[str]:
    return {*map(str, Path(path).parents)}


def _around(hidden: list[str]) -> Iterator[str]:
    above = set().union(*map(_above, hidden))
    for folder in above:
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if not entry.is_symlink() and entry.path not in above and entry.path not in hidden:
                    yield entry.path
