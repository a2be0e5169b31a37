"""Notes and the status line on standard error; none with --quiet."""

import os
import shutil
import sys

from losscli.console.streams import tell
from losscli.errors import one_line, printable

QUIET_VARIABLE = "LOSSCLI_QUIET"
LOADING = "loading PyTorch, a few seconds"
_CLEAR = "\r\033[K"

_shown = ""


def is_quiet() -> bool:
    """Tell whether --quiet was given, or its variable is set."""
    return is_on(QUIET_VARIABLE)


def is_on(variable: str) -> bool:
    """Tell whether a variable switches its option on."""
    return os.environ.get(variable, "").strip().lower() in ("1", "on", "t", "true", "y", "yes")


def note(text: str) -> None:
    """Write a line for the user, unless quiet."""
    say(f"losscli: {text}")


def say(text: str) -> None:
    """Write printable text above the status line, unless quiet."""
    if is_quiet():
        return
    # The line may belong to the parent process.
    clear = _CLEAR if has_status() else ""
    tell(f"{clear}{printable(text)}")
    status(_shown)


def status(text: str) -> None:
    """Replace the status line of a terminal; an empty text clears it."""
    global _shown
    if not has_status():
        return
    if text or _shown:
        columns = shutil.get_terminal_size((100, 24)).columns
        tell(f"{_CLEAR}{one_line(text)[: columns - 1]}", end="")
    _shown = text


def has_status() -> bool:
    """Tell whether there is a status line: on a terminal, unless quiet."""
    return sys.stderr.isatty() and not is_quiet()
