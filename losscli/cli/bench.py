"""`losscli bench`: implementations side by side, by time, memory and error."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from losscli import environment
from losscli.bench.memory import needed_bytes
from losscli.bench.plan import Task, plan
from losscli.cli.dry_run import print_cases
from losscli.cli.options import axis_options, one_of, output_options, resolve_config
from losscli.config.schema import CACHES, Timing
from losscli.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, UnfitError, UsageError
from losscli.report.writer import Writer
from losscli.results import FAILED, SKIPPED, BenchResult, Run
from losscli.units import parse_fraction, parse_seconds

if TYPE_CHECKING:
    from losscli.bench.runner import Runner


@click.command("bench")
@axis_options
@click.option("--min-time", type=parse_seconds, metavar="TIME", help="Sample a case this long.")
@click.option("--max-time", type=parse_seconds, metavar="TIME", help="And no longer than this.")
@click.option(
    "--confidence",
    type=parse_fraction,
    metavar="FRACTION",
    help="Stop when the median is known to this, 1% say.",
)
@click.option(
    "--cache", type=one_of("cache", CACHES), metavar="STATE", help=f"{', '.join(CACHES)}."
)
@output_options
def command(
    *,
    dry_run: bool,
    min_time: float | None,
    max_time: float | None,
    confidence: float | None,
    cache: str | None,
    format: str,
    output: Path | None,
    **axes: Any,
) -> int:
    """Time implementations side by side, each checked against the oracle first.

    Exit codes: 1 an implementation is wrong, 4 nothing could run on this machine, 130 interrupted;
    what was finished is reported.
    """
    config = resolve_config(**axes)
    timing = _override(config.timing, min_time, max_time, confidence=confidence, cache=cache)
    config = replace(config, timing=timing)
    device = environment.resolve_device(config.device)
    if dry_run:
        free = environment.free_bytes(device)
        print_cases(config, device, config.passes, needed_bytes, free)
        return EXIT_OK
    tasks = plan(config, device)
    if not tasks:
        raise UsageError("the config excludes every case. --dry-run shows what is left of it.")

    from losscli.bench.runner import Runner

    run = Run(
        kind="bench",
        command=("losscli", *sys.argv[1:]),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        environment=environment.describe(device),
        results=(),
    )
    with Writer(run, format, output) as writer:
        finished = _measure(Runner(config, device), tasks, writer.add)
    results = [result for result in writer.run.results if isinstance(result, BenchResult)]
    if not finished:
        click.echo("losscli: interrupted; what was finished is reported", err=True)
        return EXIT_INTERRUPTED
    if all(result.status == SKIPPED for result in results):
        raise UnfitError(f"nothing could run: {results[0].reason}.")
    return EXIT_FAILED if any(result.status == FAILED for result in results) else EXIT_OK


def _measure(runner: Runner, tasks: Sequence[Task], keep: Callable[[BenchResult], None]) -> bool:
    """Run the tasks behind a progress bar; tell whether they were finished, not interrupted."""
    names = [
        f"{task.case.name} {pass_} {name}"
        for task in tasks
        for pass_, implementations in task.passes.items()
        for name in implementations
    ]
    # Where standard error is no terminal, the bar goes nowhere.
    file = sys.stderr if sys.stderr.isatty() else io.StringIO()
    bar = click.progressbar(
        length=len(names), file=file, item_show_func=lambda name: name, show_pos=True
    )
    try:
        with bar:
            bar.current_item = names[0]
            bar.render_progress()
            for task in tasks:
                with closing(runner.run(task)) as results:
                    for result in results:
                        keep(result)
                        bar.update(1, names[min(bar.pos + 1, len(names) - 1)])
    except KeyboardInterrupt:
        return False
    return True


def _override(
    timing: Timing, min_time: float | None, max_time: float | None, **others: Any
) -> Timing:
    """Put the command line's timing over the config's; a bound given alone moves the other."""
    if min_time is not None and max_time is not None and min_time > max_time:
        raise UsageError(f"--min-time {min_time:g} s is longer than --max-time {max_time:g} s")
    if max_time is not None:
        timing = replace(timing, max_time=max_time, min_time=min(timing.min_time, max_time))
    if min_time is not None:
        timing = replace(timing, min_time=min_time, max_time=max(timing.max_time, min_time))
    return replace(timing, **{key: value for key, value in others.items() if value is not None})
