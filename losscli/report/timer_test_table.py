"""The report of the timer's self-test: a row per part, with expected and actual result."""

from __future__ import annotations

from losscli.report.tables import fill
from losscli.runs.records import FAIL, KNOWN_TIME, Run, TimerTestResult
from losscli.units import format_seconds

HEADERS = ["test", "of", "expected", "found", "status"]


def tables(run: Run, width: int | None) -> list[tuple[str, list[str], list[list[str]]]]:
    """Return the one table: its title, headers and rows."""
    rows = [
        [result.test, result.subject, _expected(result), _found(result), result.status]
        for result in _results(run)
    ]
    return [("", HEADERS, rows)]


def notes(run: Run) -> list[str]:
    """Return each failed part with its reason."""
    return [
        fill(f"{result.test}, {result.subject}: {result.reason}")
        for result in _results(run)
        if result.status == FAIL
    ]


def summary(run: Run) -> str:
    """Return the summary line."""
    results = _results(run)
    passed = sum(result.status != FAIL for result in results)
    return f"self-test of the timer: {passed} of {len(results)} parts passed"


def _expected(result: TimerTestResult) -> str:
    if result.runs is not None:
        return f"{result.test}, {result.runs} times"
    seconds = format_seconds(result.expected_seconds or 0.0)
    return seconds if result.test == KNOWN_TIME else f"below {seconds}"


def _found(result: TimerTestResult) -> str:
    if result.seconds is not None:
        return format_seconds(result.seconds)
    return f"{result.right} times"


def _results(run: Run) -> list[TimerTestResult]:
    return [result for result in run.results if isinstance(result, TimerTestResult)]
