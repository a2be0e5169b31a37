"""`losscli self-test`: whether the timer and the checks can be trusted on this machine."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import click

from losscli.cli.completion import OneOf
from losscli.cli.options import device_option, keep_going_option, output_options
from losscli.errors import EXIT_FAILED, EXIT_OK, UsageError


def run_timer_test(device: str, format: str, output: Path | None, keep_going: bool) -> int:
    """Test the timer of bench, report, and return the exit code."""
    from losscli.bench import selftest
    from losscli.cli.running import begin, run_jobs

    return run_jobs(
        begin("timer-test", device),
        selftest.plan(selftest.bench_of(device)),
        selftest.run,
        format=format,
        output=output,
        keep_going=keep_going,
    )


def run_checks_test(device: str, format: str, output: Path | None, keep_going: bool) -> int:
    """Test the checks of verify, report, and return the exit code."""
    from losscli.cli.running import begin, run_jobs
    from losscli.verify.selftest import run as selftest

    return run_jobs(
        begin("self-test", device),
        selftest.plan(device),
        selftest.run,
        format=format,
        output=output,
        keep_going=keep_going,
    )


TIMER, CHECKS = "timer", "checks"
TESTS: dict[str, Callable[[str, str, Path | None, bool], int]] = {
    TIMER: run_timer_test,
    CHECKS: run_checks_test,
}
FOR_SEVERAL = ("table", "md")
"""Formats in which one report may follow another."""

_HELP = """\
Test the timer and the checks of losscli itself on this machine.

`timer` measures work of a known length and compares calls with and without a planted difference, in
less than a minute. `checks` runs the checks on implementations that are wrong on purpose, and on
honest ones, in a few minutes. Without an argument both run.

\b
Examples:
  losscli self-test
  losscli self-test timer --device cuda
  losscli self-test checks --format json -o checks.json

Exit codes: 1 the timer or a check is wrong, 4 the device cannot be used, 130 interrupted (the
report has the finished results).
"""


@click.command("self-test", help=_HELP)
@click.argument("test", type=OneOf("self-test", TESTS), metavar="[timer|checks]", required=False)
@device_option(default="auto", show_default=True)
@keep_going_option
@output_options
def command(
    test: str | None, device: str, keep_going: bool, format: str, output: Path | None
) -> int:
    """Test the timer and the checks."""
    if test is None and (output is not None or format not in FOR_SEVERAL):
        given = "-o" if output is not None else f"--format {format}"
        raise UsageError(
            f"{given} takes one report, but two self-tests write two. Name one: timer or checks."
        )

    if test == CHECKS:  # as verify does; the timer is to see threads as bench does
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")

    # Whatever follows needs torch: an error above answers at once.
    from losscli.machine.devices import resolve_device

    resolved, code = resolve_device(device), EXIT_OK
    for index, name in enumerate([test] if test else TESTS):
        if index:
            click.echo()
        code = max(code, TESTS[name](resolved, format, output, keep_going))
        if code > EXIT_FAILED or (code and not keep_going):
            break
    return code
