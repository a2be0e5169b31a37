"""Notes on standard error: one line each, none with --quiet."""

from __future__ import annotations

import os
import sys

VARIABLE = "LOSSCLI_QUIET"
"""The variable of --quiet; the option sets it for the processes that the command starts."""
_TRUE = ("1", "on", "t", "true", "y", "yes")


def is_quiet() -> bool:
    """Tell whether --quiet was given, or its variable is set."""
    return is_on(VARIABLE)


def is_on(variable: str) -> bool:
    """Tell whether a variable switches its option on."""
    return os.environ.get(variable, "").strip().lower() in _TRUE


def note(text: str) -> None:
    """Write a line for the user, unless they asked for quiet."""
    say(f"losscli: {text}")


def say(text: str) -> None:
    """Write text as it is, as ``note`` does."""
    if not is_quiet():
        print(text, file=sys.stderr, flush=True)
