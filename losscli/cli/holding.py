"""Keeps other processes from writing the outputs of a command as long as it runs."""

from __future__ import annotations

from pathlib import Path

import click

from losscli.ranks.place import is_silent
from losscli.runs.files import is_replaceable
from losscli.runs.holding import held


def hold(*outputs: Path | None) -> None:
    """Hold outputs until the command ends; of several ranks the first does.

    Raises:
        UsageError: another process writes one of them.
        UnfitError: nothing can be written beside one.
    """
    if is_silent():
        return
    context = click.get_current_context()
    files = (path.resolve() for path in outputs if path and is_replaceable(path))
    for output in dict.fromkeys(files):
        context.with_resource(held(output))
