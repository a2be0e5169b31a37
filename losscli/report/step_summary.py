"""The step summary of GitHub Actions: Markdown, appended to the file that GitHub names."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping

VARIABLE = "GITHUB_STEP_SUMMARY"
LARGEST = 2**20 - 2**10
"""Most bytes of one step's summary; GitHub shows no larger summary at all."""


def publish(title: str, render: Callable[[], str], environ: Mapping[str, str] = os.environ) -> None:
    """Append what ``render`` returns to the summary, if this is a step of GitHub Actions.

    A summary that cannot be written is only a warning.
    """
    path = environ.get(VARIABLE)
    if not path:
        return
    markdown = f"## losscli {title}\n\n{render()}"
    try:
        with open(path, "a", encoding="utf-8") as file:
            room = LARGEST - file.tell()
            file.write(f"{_cut(markdown, room)}\n\n")
    except OSError as error:
        print(f"losscli: cannot write the step summary {path}: {error.strerror}", file=sys.stderr)


def _cut(markdown: str, room: int) -> str:
    """Cut a summary that is too long after a line, and add a note."""
    if len(markdown.encode()) <= room:
        return markdown
    kept = markdown.encode()[: max(room - 100, 0)].decode(errors="ignore").rpartition("\n")[0]
    return f"{kept}\n\nThe rest is too long for a step summary."
