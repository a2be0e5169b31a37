"""Write files atomically: readers see the old or the new file."""

import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from losscli.console.streams import ESCAPE
from losscli.errors import UsageError, writing
from losscli.runs.holding import refuse_held


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
    """Write text and a newline, or bytes, atomically if possible.

    UsageError if another process holds the file, UnfitError if it cannot be written.
    """
    refuse_held(path.resolve())
    # A file name in a report may have bytes that are not UTF-8.
    data = content if isinstance(content, bytes) else f"{content}\n".encode(errors=ESCAPE)
    with writing(path):
        if is_replaceable(path):
            replace_file(path.resolve(), [data])
        else:
            path.write_bytes(data)


def refuse_to_overwrite(output: Path | None, what: str, inputs: Mapping[str, Path]) -> None:
    """Reject an output that is one of the input files; ``what`` describes these."""
    for name, path in inputs.items():
        if output and os.path.exists(output) and os.path.samefile(output, path):
            raise UsageError(f"-o '{output}' is the {what} '{name}' itself. Name another file.")
