"""`losscli bench --self-test`: whether the timer can be trusted on this machine."""

from __future__ import annotations

from pathlib import Path

import click

from losscli.cli.options import given_besides
from losscli.cli.running import begin, run_jobs
from losscli.errors import UsageError

TAKEN = {"self_test", "device", "threads", "keep_going", "format", "output", "debug"}
"""Parameters of the command that mean something here."""


def refuse_others(context: click.Context) -> None:
    """Refuse the options that are about cases: nobody is to think that they were heeded."""
    given = [max(option.opts, key=len) for option in given_besides(context, TAKEN)]
    if given:
        raise UsageError(
            f"--self-test times work of its own and does not go with {', '.join(given)}. Leave out "
            "the one or the other."
        )


def self_test(device: str, format: str, output: Path | None, keep_going: bool) -> int:
    """Put the timer to the test, report, and return the exit code."""
    from losscli.bench import selftest

    return run_jobs(
        begin("timer-test", device),
        selftest.plan(selftest.bench_of(device)),
        selftest.run,
        format=format,
        output=output,
        keep_going=keep_going,
    )
