"""``losscli guide``: prints how to benchmark a kernel without fooling oneself."""

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
    """Return the file of the guide: inside an installed wheel, or in docs beside the package."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "guide.md"
    return installed if installed.is_file() else package.parent / "docs" / "guide.md"
