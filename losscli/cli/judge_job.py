"""`losscli judge-job`: a process that `losscli judge` starts."""

import click

from losscli.errors import EXIT_INTERRUPTED, EXIT_OK


@click.command("judge-job", hidden=True)
def command() -> int:
    """Judge the jobs that the command sends."""
    from losscli.judge.pool import serve

    try:
        serve()
    except KeyboardInterrupt:  # the command that started it reports it
        return EXIT_INTERRUPTED
    return EXIT_OK
