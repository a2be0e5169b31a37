"""Finds files of losscli and of installed modules, and reads files up to a limit."""

import errno
import os
import stat
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path

import losscli
from losscli.errors import UnfitError, UsageError
from losscli.units import format_bytes

RECORD_BYTES = 2**30
"""The maximum size of a record: a run of 100,000 cases with all samples has some 300 MB."""
SOURCE_BYTES = 16 * 2**20
CONFIG_BYTES = 2**20
"""The maximum size of a config: the longest shipped one has 4 kB."""

_PIECE = 2**20


def read_bytes(path: Path | str, most: int) -> bytes:
    """Return the contents of a file or pipe; OSError for a device, or beyond `most` bytes."""
    with open(path, "rb", buffering=0) as file:
        found = os.fstat(file.fileno())
        if not (stat.S_ISREG(found.st_mode) or stat.S_ISFIFO(found.st_mode)):
            raise OSError(errno.EINVAL, "it is neither a file nor a pipe", str(path))
        # A regular file is one piece, without a copy, unless it grows meanwhile.
        pieces = [file.read(min(found.st_size, most) + 1)]
        size = len(pieces[0])
        while pieces[-1] and size <= most:
            pieces.append(file.read(_PIECE))
            size += len(pieces[-1])
    if size > most:
        raise OSError(errno.EFBIG, f"it is larger than {format_bytes(most)}", str(path))
    return pieces[0] if len(pieces) == 2 else b"".join(pieces)


def shipped(what: str, name: str, in_checkout: str = "") -> Path:
    """Find what a wheel has in the package, and a checkout next to it; UnfitError without it."""
    package = Path(losscli.__file__).resolve().parent
    for path in (package / name, package.parent / (in_checkout or name)):
        if path.exists():
            return path
    raise UnfitError(f"{what} are missing from {package / name}. Reinstall losscli.")


def path_of_module(name: str) -> Path:
    """Find an installed module without importing it or its packages."""
    folders: Sequence[str] | None = None
    spec, parts = None, name.split(".")
    for count, part in enumerate(parts, 1):
        spec = PathFinder.find_spec(".".join(parts[:count]), folders)
        if spec is None:
            raise UsageError(f"there is no module '{name}' here: '{part}' is not found.")
        folders = spec.submodule_search_locations and [*spec.submodule_search_locations]
    if spec is None or not (spec.origin or "").endswith(".py"):
        raise UsageError(f"the module '{name}' is not written in Python. Name a file of Python.")
    return Path(str(spec.origin))
