"""``losscli guide``: prints the guide to trustworthy benchmarks."""

import click

from losscli.cli.options import examples
from losscli.console.streams import emit
from losscli.files.reading import shipped


@click.command("guide")
@examples("losscli guide")
def command() -> None:
    """Print the guide to benchmarks that can be trusted, in Markdown.

    Each rule has the losscli command that applies it.
    """
    guide = shipped("the pages of the guide", "guide.md", "docs/guide.md")
    emit(guide.read_text(encoding="utf-8").rstrip())
