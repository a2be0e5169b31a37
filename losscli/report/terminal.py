"""What a terminal changes in a report: its colours and its width."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping
from typing import IO

from losscli.report.tables import WIDTH

GREEN, YELLOW, RED = "32", "33", "31"
NARROWEST = 48
"""Characters a line that a report needs at least."""

_BAD = (
    *("CHEATS", "WRONG", "CRASHED", "HANGS", "DOES NOT BUILD", "FAILED", "FAIL"),
    *("IMPOSSIBLE", "NOT COMPARABLE"),
)
_DOUBTFUL = ("RIGHT BUT NO GRADIENT", "NO WORSE THAN TORCH", "NOT JUDGED", "SLOWER", "WARN")
_GOOD = ("RIGHT",)
_COLOUR = {
    word: colour
    for words, colour in ((_DOUBTFUL, YELLOW), (_BAD, RED), (_GOOD, GREEN))
    for word in words
}
_WORD = re.compile(rf"(?<![\w-])(?:{'|'.join(_COLOUR)})(?![\w-])")


def in_colour(stream: IO[str] | None = None, environ: Mapping[str, str] = os.environ) -> bool:
    """Tell whether to write to a stream, by default standard output, in colour.

    A terminal has colour. NO_COLOR switches it off, FORCE_COLOR on where there is no terminal.
    """
    if environ.get("NO_COLOR"):
        return False
    if forced := environ.get("FORCE_COLOR"):
        return forced != "0"
    stream = stream or sys.stdout
    return stream.isatty() and environ.get("TERM") != "dumb"


def width() -> int:
    """Return how wide a report on standard output may be: as the terminal, but no more than 100."""
    if not sys.stdout.isatty():
        return WIDTH
    return max(NARROWEST, min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns))


def coloured(text: str, colour: str) -> str:
    """Return text in a colour."""
    return f"\033[{colour}m{text}\033[0m"


def with_verdicts_in_colour(text: str) -> str:
    """Return a report whose verdicts in capitals are coloured."""
    return _WORD.sub(lambda found: coloured(found[0], _COLOUR[found[0]]), text)


def show(text: str) -> None:
    """Write a report to standard output, its verdicts in colour where it takes colour."""
    print(with_verdicts_in_colour(text) if in_colour() else text, flush=True)
