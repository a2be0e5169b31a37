"""`losscli bench --self-test`: whether the timer can be trusted on this machine."""

from __future__ import annotations

from pathlib import Path

from losscli.cli.reporting import begin
from losscli.errors import EXIT_FAILED, EXIT_OK
from losscli.report.writer import Writer
from losscli.results import FAIL


def self_test(device: str, format: str, output: Path | None) -> int:
    """Put the timer to the test, report, and return the exit code."""
    from losscli.bench import selftest

    with Writer(begin("timer-test", device), format, output) as writer:
        for result in selftest.run(selftest.bench_of(device)):
            writer.add(result)
    return EXIT_FAILED if any(r.status == FAIL for r in writer.run.results) else EXIT_OK
