"""`losscli worker`: a process that `losscli bench` starts to measure for it."""

from __future__ import annotations

import click

from losscli.errors import EXIT_OK
from losscli.machine import devices


@click.command("worker", hidden=True)
@click.option("--device", required=True, help="Measure on this device.")
@click.option("--threads", type=int, required=True, help="Use so many threads of the CPU.")
def command(*, device: str, threads: int) -> int:
    """Measure the tasks that standard input sends."""
    from losscli.bench import worker

    devices.set_threads(threads)
    worker.main(device)
    return EXIT_OK
