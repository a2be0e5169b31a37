"""The pages of the documentation that are made from the program itself, at each build."""

from __future__ import annotations

from pathlib import Path

from docs.pages import api, commands, losses, plots, records

PAGES = {
    "api.md": api.page,
    "commands.md": commands.page,
    "losses.md": losses.page,
    "plots.md": plots.page,
    "results.md": records.page,
}
"""Each page with the function that returns its text in Markdown."""


def write(folder: Path) -> None:
    """Write every page; one that has not changed keeps its time, so that Sphinx skips it."""
    folder.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        text, path = page(), folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
