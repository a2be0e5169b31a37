"""`losscli verify`: implementations against the float64 oracle."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from losscli import environment
from losscli.cli.dry_run import print_cases
from losscli.cli.options import axis_options, output_options, resolve_config
from losscli.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, UnfitError, UsageError
from losscli.report.writer import Writer
from losscli.results import FAIL, SKIPPED, Run, VerifyResult
from losscli.verify.memory import needed_bytes

if TYPE_CHECKING:
    from losscli.verify.runner import Job

DEFAULT_CONFIG = "smoke.yaml"
"""Covers every loss, reduction and dtype; the default of `losscli bench` does not."""


@click.command("verify")
@axis_options
@output_options
def command(*, dry_run: bool, format: str, output: Path | None, **axes: Any) -> int:
    """Check losses and gradients against a float64 oracle.

    Without -c the cases of smoke.yaml; without --impl losscli's own kernels alone.

    Exit codes: 1 a check failed, 4 nothing could run on this machine, 130 interrupted; what was
    finished is reported.
    """
    axes["config"] = axes["config"] or DEFAULT_CONFIG
    axes["implementations"] = axes["implementations"] or ("custom",)
    config = resolve_config(**axes)
    device = environment.resolve_device(config.device)
    if dry_run:
        free = environment.free_bytes(device)
        print_cases(config, device, config.passes, needed_bytes, free)
        return EXIT_OK

    from losscli.verify.runner import plan

    jobs = plan(config, device)
    if not jobs:
        raise UsageError("the config excludes every case. --dry-run shows what is left of it.")
    run = Run(
        kind="verify",
        command=("losscli", *sys.argv[1:]),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        environment=environment.describe(device),
        results=(),
    )
    with Writer(run, format, output) as writer:
        finished = _verify(jobs, writer.add)
    results = writer.run.results
    if not finished:
        click.echo("losscli: interrupted; what was finished is reported", err=True)
        return EXIT_INTERRUPTED
    if all(result.status == SKIPPED for result in results):
        raise UnfitError(f"nothing could run: {results[0].reason}.")
    return EXIT_FAILED if any(result.status == FAIL for result in results) else EXIT_OK


def _verify(jobs: Sequence[Job], keep: Callable[[VerifyResult], None]) -> bool:
    """Run the jobs behind a progress bar; tell whether they were finished, not interrupted."""
    from losscli.verify.runner import run

    # Where standard error is no terminal, the bar goes nowhere.
    file = sys.stderr if sys.stderr.isatty() else io.StringIO()
    bar = click.progressbar(
        jobs, file=file, show_pos=True, item_show_func=lambda job: job.case.name if job else None
    )
    try:
        with bar:
            for job in bar:
                for result in run(job):
                    keep(result)
    except KeyboardInterrupt:
        return False
    return True
