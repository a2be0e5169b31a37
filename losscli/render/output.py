"""Where a report goes: a terminal, in its width and colours, a file, or GitHub Actions."""

import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from losscli.console.streams import ESCAPE, GREEN, RED, YELLOW, coloured, emit, in_colour, tell
from losscli.errors import printable
from losscli.render.text import WIDTH
from losscli.runs.files import write_file
from losscli.views.document import State

STEP_SUMMARY = "GITHUB_STEP_SUMMARY"
LARGEST_SUMMARY = 2**20 - 2**10
"""Most bytes of one step's summary; GitHub shows nothing of a larger one."""

_WORDS: dict[State, tuple[str, ...]] = {
    "warn": (
        *("RIGHT BUT NO GRADIENT", "SAME ERROR AS PYTORCH", "RIGHT WITHIN LIMITS", "NOT JUDGED"),
        *("SLOWER", "WARN"),
    ),
    "bad": (
        *("CHEATS", "WRONG", "CRASHED", "HANGS", "DOES NOT BUILD", "FAILED", "FAIL"),
        *("NO KERNEL OF ITS OWN", "IMPOSSIBLE", "NOT COMPARABLE"),
    ),
    "good": ("RIGHT",),
}
_COLOURS: dict[State, str] = {"good": GREEN, "warn": YELLOW, "bad": RED}
_STATE = {word: state for state, words in _WORDS.items() for word in words}
_CELLS: dict[str, State] = {"failed": "bad", "fail": "bad", "skipped": "off"}
_WORD = re.compile(rf"(?<![\w-])(?:{'|'.join(_STATE)})(?![\w-])")


def state_of(text: str) -> State:
    """Return the state of a cell or note by its first word."""
    found = _WORD.match(text)
    return _STATE[found[0]] if found else _CELLS.get(text, "")


def state_in(text: str) -> State:
    """Return the state of the first word of a sentence that has one."""
    found = _WORD.search(text)
    return _STATE[found[0]] if found else ""


def width() -> int:
    """Return the width of a report on standard output: the terminal's, from 48 to 100."""
    if not sys.stdout.isatty():
        return WIDTH
    return max(48, min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns))


def with_verdicts_in_colour(text: str) -> str:
    """Colour a report's verdicts in capitals."""
    return _WORD.sub(lambda found: coloured(found[0], _COLOURS[_STATE[found[0]]]), text)


def show(text: str, states: Mapping[str, State] | None = None) -> None:
    """Write a report to standard output; verdicts and cells in ``states`` may be coloured."""
    text = printable(text)
    if in_colour():
        text = with_verdicts_in_colour(text)
        for word, state in (states or {}).items():
            cell = rf"(?m)(?:(?<=^)|(?<=  )){re.escape(word)}(?=  )"
            text = re.sub(cell, coloured(word, _COLOURS[state]), text)
    emit(text)


def write_report(text: str, format: str, output: Path | None) -> None:
    """Write a report to a file or standard output; UnfitError if that fails."""
    text = printable(text)
    if output:
        write_file(output, text)
    elif format == "table":
        show(text)
    else:
        emit(text)


def publish(title: str, render: Callable[[], str], environ: Mapping[str, str] = os.environ) -> None:
    """Append ``render()`` to the summary of a GitHub Actions step; only warn on failure."""
    if not (path := environ.get(STEP_SUMMARY)):
        return
    markdown = printable(f"## losscli {title}\n\n{render()}")
    try:
        with open(path, "a", encoding="utf-8", errors=ESCAPE) as file:
            room, encoded = LARGEST_SUMMARY - file.tell(), markdown.encode(errors=ESCAPE)
            if len(encoded) > room:
                kept = encoded[: max(room - 100, 0)].decode(errors="ignore").rpartition("\n")[0]
                markdown = f"{kept}\n\nThe rest is too long for a step summary."
            file.write(f"{markdown}\n\n")
    except OSError as error:
        tell(f"losscli: cannot write the step summary {path}: {error.strerror}")
