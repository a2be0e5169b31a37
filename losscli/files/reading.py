"""Read a user's file up to a limit; devices and endless pipes are rejected."""

import errno
import os
import stat
from pathlib import Path

from losscli.units import format_bytes

RECORD_BYTES = 2**30
"""The maximum size of a record: a run of 100,000 cases with all samples has some 300 MB."""
SOURCE_BYTES = 16 * 2**20
CONFIG_BYTES = 2**20
"""The maximum size of a config: the longest shipped one has 4 kB."""

_PIECE = 2**20


def read_bytes(path: Path | str, most: int) -> bytes:
    """Return the contents of a file or pipe of at most `most` bytes, or raise OSError."""
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
