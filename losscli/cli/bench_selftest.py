"""`losscli bench --self-test`: whether the timer can be trusted on this machine."""

from __future__ import annotations

from pathlib import Path

from losscli.cli.running import begin, run_jobs


def self_test(device: str, format: str, output: Path | None, keep_going: bool) -> int:
    """Test the timer, report, and return the exit code."""
    from losscli.bench import selftest

    return run_jobs(
        begin("timer-test", device),
        selftest.plan(selftest.bench_of(device)),
        selftest.run,
        format=format,
        output=output,
        keep_going=keep_going,
    )
