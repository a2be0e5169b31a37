"""What a file has compiled in one worker, carried to the next ones, so that it is compiled once.

It is taken before the file has seen an operand: no answer can be in it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import msgspec

FOLDER = "extensions"
"""Where PyTorch compiles extensions, below the scratch directory of a worker."""
MOST_BYTES = 2**28
LOCK = "lock"
"""What a compilation holds while it writes; a copy would have the next one wait for ever."""


class _Compiled(msgspec.Struct):
    """One file; ninja compares its time, to the nanosecond, with those of the others."""

    path: str
    mode: int
    modified: int
    data: bytes


def pack(scratch: str) -> bytearray:
    """Return what has been compiled below a scratch directory.

    Nothing if that is too much, or changes meanwhile.
    """
    root, packed = Path(scratch, FOLDER), bytearray()
    found, left = [], MOST_BYTES
    with suppress(OSError):
        for path in sorted(root.rglob("*")):
            if path.is_symlink() or not path.is_file() or path.name == LOCK:
                continue
            facts, name = path.stat(), str(path.relative_to(root))
            left -= facts.st_size
            if left < 0:
                return packed
            found.append(_Compiled(name, facts.st_mode, facts.st_mtime_ns, path.read_bytes()))
        if found:
            msgspec.msgpack.Encoder().encode_into(found, packed)
    return packed


def unpack(packed: bytearray | memoryview, scratch: str) -> None:
    """Put back what another worker has compiled; on a full disk, a part of it.

    ninja finds it up to date only below the same path: where the kernel offers no file system of
    each worker's own, the next worker compiles again.
    """
    with suppress(OSError):
        for each in msgspec.msgpack.decode(packed, type=list[_Compiled]):
            path = Path(scratch, FOLDER, each.path)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(each.data)
            path.chmod(each.mode & 0o777)
            os.utime(path, ns=(each.modified, each.modified))
