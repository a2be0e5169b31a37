"""Write files atomically, and reserve an output for one process by the lock ``OUTPUT.lock``."""

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from losscli.console.streams import ESCAPE
from losscli.errors import UnfitError, UsageError, writing
from losscli.processes.lock import Holder, try_lock

_TRIES, _PAUSE = 4, 0.01
"""A process that asks who holds an output takes its lock for a moment."""


def is_replaceable(path: Path) -> bool:
    """Tell a file from a pipe or terminal, by the unresolved path: a pipe's target is no file."""
    return os.path.isfile(path) or not os.path.exists(path)


def replace_file(path: Path, parts: Iterable[bytes]) -> None:
    """Replace a file atomically with bytes, keeping its permissions."""
    handle, partial = tempfile.mkstemp(prefix=f"{path.name}.", dir=path.parent)
    try:
        with open(handle, "wb") as file:
            file.writelines(parts)
        if os.path.exists(path):
            shutil.copymode(path, partial)
        else:
            os.umask(mask := os.umask(0))
            os.chmod(partial, 0o666 & ~mask)
        os.replace(partial, path)
    except BaseException:
        os.unlink(partial)
        raise


def write_file(path: Path, content: str | bytes) -> None:
    """Write text and a newline, or bytes, atomically if possible; UsageError if held."""
    refuse_held(path.resolve())
    # A file name in a report may have bytes that are not UTF-8.
    data = content if isinstance(content, bytes) else f"{content}\n".encode(errors=ESCAPE)
    with writing(path):
        if is_replaceable(path):
            replace_file(path.resolve(), [data])
        else:
            path.write_bytes(data)


@contextlib.contextmanager
def held(output: Path) -> Iterator[None]:
    """Hold an output within the block; UsageError if another process holds it."""
    path = _lock_path(output)
    with writing(path, "Choose another -o or --save."):
        file = _take(path, output)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        file.close()


def holder_of(output: Path) -> Holder | None:
    """Return the process that holds an output, or None."""
    with contextlib.suppress(OSError), _lock_path(output).open(encoding="utf-8") as file:
        return None if _lock(file, shared=True) else Holder.read(file)
    return None


def refuse_held(output: Path) -> None:
    """Raise UsageError if another process holds an output."""
    if (holder := holder_of(output)) and holder != Holder.here(holder.since):
        raise _refusal(output, holder)


def _lock_path(output: Path) -> Path:
    return output.with_name(f"{output.name}.lock")


def _take(path: Path, output: Path) -> IO[str]:
    for _ in range(_TRIES):
        file = path.open("a+", encoding="utf-8")
        if _lock(file) and _is_at(file, path):  # else its holder has just removed it
            Holder.here().write(file)
            return file
        holder = Holder.read(file)
        file.close()
        time.sleep(_PAUSE)
    raise _refusal(output, holder)


def _lock(file: IO[str], *, shared: bool = False) -> bool:
    try:
        return try_lock(file, shared=shared)
    except UnfitError:  # a file system may have no locks
        return True


def _is_at(file: IO[str], path: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    return False


def _refusal(output: Path, holder: Holder) -> UsageError:
    advice = "Wait for its end, or choose another -o or --save."
    return UsageError(f"{output} is being written by {holder}. {advice}")
