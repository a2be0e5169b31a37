"""Folders owned by a process until it ends, in a folder shared by many hosts.

Each holds a lock, because process ids mean nothing in another container.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

from losscli.processes.lock import open_lock, try_lock

LOCK = "lock"
_PREFIX = "judge-"


def claim_folder(parent: Path) -> Path:
    """Create a folder that this process owns until it ends."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        # Until it is locked, another process may consider it abandoned and remove it.
        with contextlib.suppress(FileNotFoundError), open_lock(folder / LOCK) as file:
            if try_lock(file) and os.path.samestat(os.stat(file.name), os.fstat(file.fileno())):
                os.dup(file.fileno())  # is never closed, and keeps the lock
                return folder


def remove_unclaimed(parent: Path) -> None:
    """Remove the folders of ended processes."""
    for folder in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if not (folder / LOCK).exists():
                folder.rmdir()  # one that is being made is not there then, and is made again
                continue
            with open_lock(folder / LOCK) as file:
                if try_lock(file):
                    shutil.rmtree(folder, ignore_errors=True)
