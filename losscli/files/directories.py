"""The user's directories, and whether other users could change them."""

import contextlib
import os
import stat
import time
from pathlib import Path
from typing import Literal

from losscli.errors import UnfitError, UsageError

CACHE_VARIABLE = "LOSSCLI_CACHE_DIR"
LOCKS = "locks"
UNUSED_SECONDS = 30 * 24 * 3600.0
"""What a cache holds is removed once it is unused for this long."""


def cache_directory(what: str) -> Path:
    """Return the user's cache; see :func:`user_directory`."""
    return user_directory("cache", CACHE_VARIABLE, what)


def user_directory(kind: Literal["cache", "data"], variable: str, what: str) -> Path:
    """Return the variable's directory or the default; UsageError without such a home."""
    import platformdirs

    given = os.environ.get(variable, "")
    default = {"cache": platformdirs.user_cache_path, "data": platformdirs.user_data_path}[kind]
    try:
        return Path(given).expanduser() if given else default("losscli")
    except RuntimeError:
        whose = f"{variable} is '{given}', but" if given else f"to keep {what} in,"
        mend = f"Name a directory in {variable}."
        raise UsageError(f"{whose} there is no such home directory. {mend}") from None


def private_folder(what: str, name: str) -> Path:
    """Return a cache folder, made or not; UnfitError if other users could change it."""
    folder = cache_directory(what) / name
    require_private(folder.parent)
    require_private(folder)
    return folder


def make_private(folder: Path, mode: int = 0o700) -> None:
    """Make a folder with at most the permissions ``mode``, which no other user can change."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode=mode if path == folder else 0o755, exist_ok=True)
    require_private(folder)
    found = folder.stat()
    if found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) & ~mode:
        folder.chmod(stat.S_IMODE(found.st_mode) & mode)


def require_private(path: Path) -> None:
    """Reject an existing path that other users could change; UnfitError if they could."""
    if weakness := weakness_of(path):
        own = path.stat().st_uid == os.geteuid()
        mend = f"Run `chmod go-w {path}` if you trust what it holds, or n" if own else "N"
        mend += f"ame a folder of your own in {CACHE_VARIABLE}."
        raise UnfitError(f"{weakness}, who could change what losscli reads there. {mend}")


def weakness_of(path: Path) -> str:
    """Return which users could change a path; empty if none, or if it cannot be read."""
    try:
        found = path.stat()
    except OSError:
        return ""
    mode = stat.S_IMODE(found.st_mode)
    if found.st_uid not in (os.geteuid(), 0):
        return f"{path} belongs to user {found.st_uid} (mode {mode:o})"
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"{path} (owner {found.st_uid}, mode {mode:o}) can be written by other users"
    return ""


def weakness_along(path: Path) -> str:
    """Return which users could replace a file or a folder above it, or an empty string."""
    found = ""
    for each in (path.absolute(), *path.absolute().parents):
        mode = each.stat().st_mode
        if not mode & (stat.S_IXGRP | stat.S_IXOTH) and stat.S_ISDIR(mode):
            found = ""  # nobody else reaches what is below
        # With the sticky bit, as for /tmp, only the owner can replace entries.
        if not (stat.S_ISDIR(mode) and mode & stat.S_ISVTX):
            found = found or weakness_of(each)
    return found


def note_use(path: Path) -> None:
    """Record the time of use, if possible; a clock set back ages nothing."""
    with contextlib.suppress(OSError):
        if path.stat().st_mtime < time.time():
            os.utime(path)


def is_unused(path: Path, now: float) -> bool:
    """Tell whether something was not used for long; ``now`` in seconds since the epoch."""
    return now - path.stat().st_mtime > UNUSED_SECONDS
