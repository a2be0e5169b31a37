"""Runs commands and returns their output."""

import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from losscli.errors import UnfitError

SECONDS = 10


def command_in(variable: str, environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return a variable's command as words; UnfitError if a quote is not closed."""
    text = environ.get(variable, "").strip()
    try:
        return tuple(shlex.split(text))
    except ValueError:
        why = f"unclosed quote or trailing backslash in [{text}]. Correct or unset {variable}."
        raise UnfitError(f"{variable} is not a command: {why}") from None


def cxx() -> tuple[str, ...]:
    """Return the command of the C++ compiler; UnfitError as above."""
    return command_in("CXX") or ("c++",)


def run(command: Sequence[str], **more: Any) -> subprocess.CompletedProcess[str]:
    """Run a program without input; capture its output as text."""
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", **more
    )


def first_line(command: list[str]) -> str | None:
    """Run a program and return its first line of output, or None."""
    return next(iter((printed(command) or "").splitlines()), None)


def printed(command: list[str]) -> str | None:
    """Run a program and return its output; None if it is missing, fails or hangs."""
    with suppress(OSError, subprocess.SubprocessError):
        return run(command, timeout=SECONDS, check=True).stdout
    return None
