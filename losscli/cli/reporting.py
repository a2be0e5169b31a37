"""What `losscli bench` and `losscli verify` share: run jobs, report their results."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol, TypeVar

import click

from losscli import environment
from losscli.cases import Case
from losscli.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, UnfitError, UsageError
from losscli.report import digest
from losscli.report.writer import Writer
from losscli.results import FAIL, FAILED, SKIPPED, Result, Run


class Job(Protocol):
    """What is run of one case."""

    @property
    def case(self) -> Case:
        """The case."""
        ...


AnyJob = TypeVar("AnyJob", bound=Job)


def report(
    kind: str,
    device: str,
    jobs: Sequence[AnyJob],
    results_of: Callable[[AnyJob], Generator[Result, None, None]],
    *,
    format: str,
    output: Path | None,
) -> int:
    """Run jobs, write the report of their results, and return the exit code.

    Args:
        kind: of the run, ``bench`` or ``verify``.
        device: they run on.
        jobs: to be run in order.
        results_of: yields the results of a job, each as it is there.
        format: of the report.
        output: where it goes; None is standard output.
    """
    if not jobs:
        raise UsageError("the config excludes every case. --dry-run shows what is left of it.")
    run = Run(
        kind=kind,
        command=("losscli", *sys.argv[1:]),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        environment=environment.describe(device),
        results=(),
    )
    with Writer(run, format, output) as writer:
        finished = _run_all(jobs, results_of, writer.add)
    results = writer.run.results
    if output and results:
        click.echo(f"{digest(writer.run)}\n\nlosscli: wrote {output}", err=True)
    if not finished:
        what = "; what was finished is reported" if results else " before the first result"
        click.echo(f"losscli: interrupted{what}", err=True)
        return EXIT_INTERRUPTED
    if all(result.status == SKIPPED for result in results):
        raise UnfitError(f"nothing could run: {results[0].reason}.")
    failed = any(result.status in (FAIL, FAILED) for result in results)
    return EXIT_FAILED if failed else EXIT_OK


def _run_all(
    jobs: Sequence[AnyJob],
    results_of: Callable[[AnyJob], Generator[Result, None, None]],
    keep: Callable[[Result], None],
) -> bool:
    """Run the jobs behind a progress bar; tell whether they were finished, not interrupted."""
    # Where standard error is no terminal, the bar goes nowhere.
    file = sys.stderr if sys.stderr.isatty() else io.StringIO()
    bar = click.progressbar(
        jobs, file=file, show_pos=True, item_show_func=lambda job: job.case.name if job else None
    )
    try:
        with bar:
            for job in bar:
                with closing(results_of(job)) as results:
                    for result in results:
                        keep(result)
    except KeyboardInterrupt:
        return False
    return True
