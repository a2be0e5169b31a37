"""Standard output and standard error, which may hold ASCII alone, be closed, or be full."""

from __future__ import annotations

import contextlib
import io
import os
import sys

from losscli.errors import UnfitError

NAMES = ("stdout", "stderr")
ESCAPE = "backslashreplace"
"""What becomes of characters that a stream or a file cannot hold."""


def prepare() -> None:
    """Escape what a stream cannot hold; replace one that was closed at the start (``>&-``)."""
    for name in NAMES:
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            with contextlib.suppress(OSError):  # a descriptor that became a pipe, or is closed
                stream.reconfigure(errors=ESCAPE)


def emit(text: str = "", end: str = "\n") -> None:
    """Write text to standard output at once.

    Raises:
        UnfitError: it cannot be written, on a full disk for example.
        BrokenPipeError: what reads it has ended.
    """
    try:
        print(text, end=end, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UnfitError(f"cannot write standard output: {error.strerror}.") from None


def tell(text: str, end: str = "\n") -> None:
    """Write text to standard error at once; a full disk there ends no command.

    Raises:
        BrokenPipeError: what reads it has ended.
    """
    try:
        print(text, end=end, file=sys.stderr, flush=True)
    except BrokenPipeError:
        raise
    except OSError:
        return


def give_up_broken() -> None:
    """Send what a broken stream still holds to /dev/null: Python writes it again as it exits."""
    for name in NAMES:
        stream = getattr(sys, name)
        try:
            stream.flush()
        except OSError:
            with open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), stream.fileno())
