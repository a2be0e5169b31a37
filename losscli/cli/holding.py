"""Lock the outputs of a command while it runs."""

from pathlib import Path

import click

from losscli.ranks.place import is_silent
from losscli.runs.files import held, is_replaceable


def hold(
    output: Path | None, saved: Path | None = None, *, kind: str = "", resume: str | None = None
) -> Path | None:
    """Lock a command's outputs until it ends; only the first rank does.

    Returns the file of the unfinished run that ``resume`` names. A run of a ``kind`` has a journal.
    UsageError if another process writes an output, a journal was never reported, or there is no
    unfinished run; UnfitError if nothing can be written.
    """
    if is_silent():
        return None
    context = click.get_current_context()
    files = (path.resolve() for path in (output, saved) if path and is_replaceable(path))
    for path in dict.fromkeys(files):
        context.with_resource(held(path))
    unfinished = None
    if resume is not None:
        from losscli.runs.journal import find_unfinished

        unfinished = find_unfinished(resume)
    if kind:
        from losscli.runs.journal import journal_of, refuse_unreported

        if place := journal_of(output, saved):
            refuse_unreported(kind, place[0], unfinished, place[1])
    return unfinished
