"""Keeps results on disk while they are printed, because printing may fail."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

from losscli.console.streams import tell
from losscli.errors import UnfitError, UsageError
from losscli.files.directories import user_directory
from losscli.runs.files import write_file
from losscli.runs.saved import VARIABLE

_NAME = "unprinted"


@contextlib.contextmanager
def kept(kind: str, record: Callable[[], str], where: Path | None = None) -> Iterator[None]:
    """Keep a record on disk while the block prints it; if the block fails, say where it is.

    ``where`` is an existing file with all of it.
    """
    path = where or _write(kind, record())
    try:
        yield
    except BaseException:
        if path:
            with contextlib.suppress(BrokenPipeError):
                tell(f"losscli: {path} holds the finished results")
        raise
    if path and not where:
        path.unlink(missing_ok=True)


def _write(kind: str, text: str) -> Path | None:
    for folder in _folders():
        with contextlib.suppress(OSError, UnfitError):
            folder.mkdir(parents=True, exist_ok=True)
            prefix = f"{kind}-{datetime.now():%Y%m%d-%H%M%S}-"
            handle, name = tempfile.mkstemp(prefix=prefix, suffix=".jsonl", dir=folder)
            os.close(handle)
            write_file(Path(name), text)
            return Path(name)
    return None


def _folders() -> Iterator[Path]:
    with contextlib.suppress(UsageError):  # no such home directory
        yield user_directory("data", VARIABLE, "results") / _NAME
    with contextlib.suppress(OSError):
        yield Path(tempfile.gettempdir())
