"""What a file has compiled in one worker, carried to the next ones, so that it is compiled once.

It is taken before the file has seen an operand: no answer can be in it.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

FOLDER = "extensions"
"""Where PyTorch compiles extensions, below the scratch directory of a worker."""
MOST_BYTES = 2**28


class _Compiled(msgspec.Struct):
    """One file; ninja compares its time, to the nanosecond, with those of the others."""

    path: str
    mode: int
    modified: int
    data: bytes


def pack(scratch: str) -> bytes:
    """Return what has been compiled below a scratch directory; nothing if that is too much."""
    root = Path(scratch, FOLDER)
    found, left = [], MOST_BYTES
    for path in sorted(root.rglob("*")):
        if path.is_symlink() or not path.is_file():
            continue
        facts = path.stat()
        left -= facts.st_size
        if left < 0:
            return b""
        name = str(path.relative_to(root))
        found.append(_Compiled(name, facts.st_mode, facts.st_mtime_ns, path.read_bytes()))
    return msgspec.msgpack.encode(found) if found else b""


def unpack(packed: bytes, scratch: str) -> None:
    """Put back what another worker of the same scratch directory has compiled."""
    for each in msgspec.msgpack.decode(packed, type=list[_Compiled]):
        path = Path(scratch, FOLDER, each.path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(each.data)
        path.chmod(each.mode & 0o777)
        os.utime(path, ns=(each.modified, each.modified))
