"""`losscli bench`: implementations side by side, by time, memory and error."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from losscli import environment
from losscli.bench.memory import fit, needed_bytes
from losscli.bench.plan import plan
from losscli.cli import bench_selftest
from losscli.cli.dry_run import print_cases
from losscli.cli.options import axis_options, one_of, output_options, resolve_config
from losscli.cli.reporting import report
from losscli.config.schema import CACHES, MODES, Config, Timing
from losscli.errors import EXIT_OK, UsageError
from losscli.units import parse_fraction, parse_seconds


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
@click.option(
    "--mode",
    type=one_of("mode", MODES),
    multiple=True,
    metavar="NAME",
    help=f"{', '.join(MODES)}; may be repeated.",
)
@click.option("--self-test", is_flag=True, help="Put the timer to the test on this machine.")
@output_options
def command(
    *,
    dry_run: bool,
    min_time: float | None,
    max_time: float | None,
    confidence: float | None,
    cache: str | None,
    mode: tuple[str, ...],
    self_test: bool,
    format: str,
    output: Path | None,
    **axes: Any,
) -> int:
    """Time implementations side by side, each checked against the oracle first.

    Exit codes: 1 an implementation is wrong, 4 nothing could run on this machine, 130 interrupted;
    what was finished is reported.
    """
    config = resolve_config(**axes)

    def timed(block: Config) -> Config:
        others = {"confidence": confidence, "cache": cache, "mode": mode or None}
        times = _override(block.timing, min_time, max_time, **others)
        return replace(block, timing=times, tables=tuple(map(timed, block.tables)))

    config = timed(config)
    device = environment.resolve_device(config.device)
    if self_test:
        return bench_selftest.self_test(device, format, output)
    if dry_run:
        free = environment.free_bytes(device)
        print_cases(config, device, needed_bytes, fit, free)
        return EXIT_OK

    from losscli.bench.runner import Runner

    runner = Runner(device, notify=lambda note: click.echo(f"losscli: {note}", err=True))
    return report("bench", device, plan(config, device), runner.run, format=format, output=output)


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
