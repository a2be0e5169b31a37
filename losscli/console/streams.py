"""Standard output and error, which may be ASCII-only, closed, or full."""

import contextlib
import io
import os
import sys
from collections.abc import Mapping
from typing import IO

from losscli.errors import UnfitError

GREEN, YELLOW, RED = "32", "33", "31"
NAMES = ("stdout", "stderr")
ESCAPE = "backslashreplace"
"""The treatment of characters that a stream or file cannot hold."""


def in_colour(stream: IO[str] | None = None, environ: Mapping[str, str] = os.environ) -> bool:
    """Tell whether to write in colour: on a terminal, unless NO_COLOR or FORCE_COLOR is set."""
    if environ.get("NO_COLOR"):
        return False
    if forced := environ.get("FORCE_COLOR"):
        return forced != "0"
    return (stream or sys.stdout).isatty() and environ.get("TERM") != "dumb"


def coloured(text: str, colour: str) -> str:
    """Return text in a colour."""
    return f"\033[{colour}m{text}\033[0m"


def prepare() -> None:
    """Escape what a stream cannot hold; replace one that was closed (``>&-``)."""
    for name in NAMES:
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            with contextlib.suppress(OSError):  # a descriptor that became a pipe, or is closed
                stream.reconfigure(errors=ESCAPE)


def emit(text: str = "", end: str = "\n") -> None:
    """Write text to standard output; UnfitError if it is full."""
    try:
        print(f"{text}{end}", end="", flush=True)  # at once, whatever others write
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UnfitError(f"cannot write standard output: {error.strerror}.") from None


def tell(text: str, end: str = "\n") -> None:
    """Write text to standard error; a full disk is ignored."""
    try:
        print(f"{text}{end}", end="", file=sys.stderr, flush=True)
    except BrokenPipeError:
        raise
    except OSError:
        return


def give_up_broken() -> None:
    """Redirect a broken stream to /dev/null, because Python flushes it again at exit."""
    for name in NAMES:
        stream = getattr(sys, name)
        try:
            stream.flush()
        except OSError:
            with open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), stream.fileno())
