"""`losscli self-test`: whether the timer and the checks can be trusted on this machine."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import click

from losscli.cli.completion import OneOf
from losscli.cli.options import device_option, examples, keep_going_option, output_options
from losscli.errors import EXIT_FAILED, EXIT_OK, UsageError

TIMER, CHECKS = "timer", "checks"
FOR_SEVERAL = ("table", "md")
"""Formats in which one report may follow another."""


@click.command("self-test")
@click.argument(
    "test", type=OneOf("self-test", (TIMER, CHECKS)), metavar="[timer|checks]", required=False
)
@device_option(default="auto", show_default=True)
@keep_going_option
@output_options
@examples(
    "losscli self-test",
    "losscli self-test timer --device cuda",
    "losscli self-test checks --format json -o checks.json",
    after="Exit codes: 1 the timer or a check is wrong, 4 the device cannot be used, 130 "
    "interrupted (the report has the finished results).",
)
def command(
    test: str | None, device: str, keep_going: bool, format: str, output: Path | None
) -> int:
    """Test the timer and the checks of losscli itself on this machine.

    `timer` measures work of a known length and compares calls with and without a planted
    difference, in less than a minute. `checks` runs the checks on implementations that are wrong on
    purpose, and on honest ones, in a few minutes. Without an argument both run.
    """
    if test is None and (output is not None or format not in FOR_SEVERAL):
        given = "-o" if output is not None else f"--format {format}"
        raise UsageError(
            f"{given} takes one report, but two self-tests write two. Name one: timer or checks."
        )

    if test == CHECKS:  # as verify does; the timer is to see threads as bench does
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")

    # Whatever follows needs torch: an error above answers at once.
    from losscli.cli.running import begin, run_jobs
    from losscli.machine.devices import resolve_device

    resolved, code = resolve_device(device), EXIT_OK
    run_all = partial(run_jobs, format=format, output=output, keep_going=keep_going)
    if test != CHECKS:
        from losscli.bench import selftest as timer

        plan = timer.plan(timer.bench_of(resolved))
        code = run_all(begin("timer-test", resolved), plan, timer.run)
    if test != TIMER and code <= EXIT_FAILED and (not code or keep_going):
        from losscli.verify.selftest import run as checks

        if test is None:
            click.echo()
        code = max(code, run_all(begin("self-test", resolved), checks.plan(resolved), checks.run))
    return code
