"""Writes files atomically: a reader finds the old file or the new file as a whole."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path


def is_replaceable(path: Path) -> bool:
    """Tell a file from a pipe or a terminal; to be asked of a path with its links.

    What /dev/stdout links to has no name where it is a pipe.
    """
    return os.path.isfile(path) or not os.path.exists(path)


def replace_file(path: Path, lines: Iterable[str]) -> None:
    """Put lines in place of a file at once, with its permissions where it was there."""
    replace_bytes(path, (f"{line}\n".encode() for line in lines))


def replace_bytes(path: Path, parts: Iterable[bytes]) -> None:
    """Put parts of bytes in place of a file at once; see :func:`replace_file`."""
    handle, partial = tempfile.mkstemp(prefix=f"{path.name}.", dir=path.parent)
    try:
        with open(handle, "wb") as file:
            file.writelines(parts)
        if os.path.exists(path):
            shutil.copymode(path, partial)
        else:
            os.chmod(partial, 0o666 & ~_umask())
        os.replace(partial, path)
    except BaseException:
        os.unlink(partial)
        raise


def _umask() -> int:
    """Return the mask of new files, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
