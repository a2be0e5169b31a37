"""`losscli bench --self-test`: whether the timer can be trusted on this machine."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

from losscli import environment
from losscli.errors import EXIT_FAILED, EXIT_OK
from losscli.report.writer import Writer
from losscli.results import FAIL, Run


def self_test(device: str, format: str, output: Path | None) -> int:
    """Put the timer to the test, report, and return the exit code."""
    from losscli.bench import selftest

    run = Run(
        kind="timer-test",
        command=("losscli", *sys.argv[1:]),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        environment=environment.describe(device),
        results=(),
    )
    with Writer(run, format, output) as writer:
        for result in selftest.run(selftest.bench_of(device)):
            writer.add(result)
    return EXIT_FAILED if any(r.status == FAIL for r in writer.run.results) else EXIT_OK
