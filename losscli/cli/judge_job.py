"""`losscli judge-job`: a process that `losscli judge` starts, or another pool, to judge for it."""

from __future__ import annotations

import click

from losscli.errors import EXIT_INTERRUPTED, EXIT_OK


@click.command("judge-job", hidden=True)
@click.option("--end-with-parent", is_flag=True, help="End when the process that started it ends.")
def command(*, end_with_parent: bool) -> int:
    """Judge the jobs that standard input has, one a line, and write a verdict a line."""
    from losscli.judge import serving

    if end_with_parent:
        serving.end_with_parent()
    try:
        serving.main()
    except KeyboardInterrupt:  # the command that started it says so, once for all
        return EXIT_INTERRUPTED
    return EXIT_OK
