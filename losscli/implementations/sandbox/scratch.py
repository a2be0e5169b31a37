"""The scratch directories of running judges, and compiled output carried between workers' own."""

import atexit
import os
import shutil
from contextlib import suppress
from functools import cache
from pathlib import Path

import msgspec

from losscli.errors import writing
from losscli.files.directories import CACHE_VARIABLE, make_private, private_folder
from losscli.processes.lock import claim_folder, remove_unclaimed

FOLDER = "extensions"
"""PyTorch's folder for extensions in a worker's scratch directory."""
MOST_BYTES = 2**28
LOCK = "lock"
"""The lock of a running compilation; a copied one would block the next worker forever."""


def scratch_directory() -> Path:
    """Return the directory for workers' file systems; UnfitError if it cannot be private."""
    return _claimed(private_folder("what candidates write", "scratch"))


@cache
def _claimed(shared: Path) -> Path:
    with writing(shared, f"Name a folder that can be written in {CACHE_VARIABLE}."):
        make_private(shared)
        remove_unclaimed(shared)
        own = claim_folder(shared)
    atexit.register(shutil.rmtree, own, ignore_errors=True)
    return own


class _Compiled(msgspec.Struct):
    """One compiled file; ninja compares its time to the nanosecond."""

    path: str
    mode: int
    modified: int
    data: bytes


def pack(scratch: str) -> bytearray:
    """Return a scratch directory's compiled output; empty if it is too large or changes."""
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
    """Restore another worker's compiled output, which ninja only reuses at the same path."""
    with suppress(OSError):
        for each in msgspec.msgpack.decode(packed, type=list[_Compiled]):
            path = Path(scratch, FOLDER, each.path)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(each.data)
            path.chmod(each.mode & 0o777)
            os.utime(path, ns=(each.modified, each.modified))
