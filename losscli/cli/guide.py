"""``losscli guide``: prints the guide to trustworthy benchmarks."""

from pathlib import Path

import click

from losscli.cli.options import examples
from losscli.console.streams import emit


@click.command("guide")
@examples("losscli guide")
def command() -> None:
    """Print the guide to benchmarks that can be trusted, in Markdown.

    Each rule has the losscli command that applies it.
    """
    emit(guide().read_text(encoding="utf-8").rstrip())


def guide() -> Path:
    """Return the guide's file: in an installed wheel, or in docs next to the package."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "guide.md"
    return installed if installed.is_file() else package.parent / "docs" / "guide.md"
