"""A lock between processes, on an open file; the kernel releases it when its holder ends."""

from __future__ import annotations

from typing import IO

from losscli.errors import UnfitError


def try_lock(file: IO[str], *, shared: bool = False) -> bool:
    """Take the lock if it is free, alone or shared with others; tell whether it was taken.

    Raises:
        UnfitError: the file system has no locks.
    """
    import fcntl  # not there on Windows, where this module is to be importable all the same

    mode = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(file, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise UnfitError(
            f"cannot lock {file.name}: {error.strerror}. Name a folder on another file system in "
            "LOSSCLI_CACHE_DIR."
        ) from None
    return True


def unlock(file: IO[str]) -> None:
    """Release the lock; closing the file would not do where another process has inherited it."""
    import fcntl

    fcntl.flock(file, fcntl.LOCK_UN)
