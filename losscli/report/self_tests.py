"""The reports of the self-tests: of the checks of verify, and of the timer.

Of the checks, a row is an implementation, a column a loss. A cell of a wrong implementation has the
first check that fails it, or SURVIVED; a cell of a correct one has ``passed``, or FAILED with the
check. Of the timer, a row is a part of the test, with the expected and the actual result.
"""

from __future__ import annotations

from losscli.report.tables import Tables, fill
from losscli.runs.grouping import grouped
from losscli.runs.records import FAIL, KNOWN_TIME, Run, SelfTestResult, TimerTestResult
from losscli.units import format_seconds

SURVIVED = "SURVIVED"


def tables_of_checks(run: Run, width: int | None) -> Tables:
    """Return the one table: its title, headers and rows."""
    results = run.of(SelfTestResult)
    losses = list(dict.fromkeys(result.case.loss for result in results))
    rows = []
    for name, own in grouped(results, lambda result: result.implementation).items():
        cells = {result.case.loss: _cell(result) for result in own}
        rows.append([name, *(cells.get(loss, "-") for loss in losses)])
    return [("", ["implementation", *losses], rows)]


def notes_on_checks(run: Run) -> list[str]:
    """Return each unexpected result in full."""
    return [fill(_complaint(result)) for result in run.of(SelfTestResult) if result.surprising]


def summary_of_checks(run: Run) -> str:
    """Return the summary line."""
    failed = grouped(run.of(SelfTestResult), lambda result: result.honest)
    wrong, honest = ([r.failed for r in failed.get(kind, [])] for kind in (False, True))
    return (
        f"self-test: {sum(wrong)} of {len(wrong)} wrong implementations caught, "
        f"{honest.count(False)} of {len(honest)} honest ones passed"
    )


def _cell(result: SelfTestResult) -> str:
    if result.honest:
        return f"FAILED {result.check}" if result.failed else "passed"
    return result.check if result.failed else SURVIVED


def _complaint(result: SelfTestResult) -> str:
    name = f"{result.implementation}, {result.case.loss}"
    if result.honest:
        return f"FAILED {name}, {result.check} of {result.case.name}: {result.reason}"
    return f"{SURVIVED} {name}: no check fails it"


def tables_of_timer(run: Run, width: int | None) -> Tables:
    """Return the one table: its title, headers and rows."""
    rows = [
        [result.test, result.subject, _expected(result), _actual(result), result.status]
        for result in run.of(TimerTestResult)
    ]
    return [("", ["test", "of", "expected", "found", "status"], rows)]


def notes_on_timer(run: Run) -> list[str]:
    """Return each failed part with its reason."""
    failed = (result for result in run.of(TimerTestResult) if result.status == FAIL)
    return [fill(f"{result.test}, {result.subject}: {result.reason}") for result in failed]


def summary_of_timer(run: Run) -> str:
    """Return the summary line."""
    results = run.of(TimerTestResult)
    passed = sum(result.status != FAIL for result in results)
    return f"self-test of the timer: {passed} of {len(results)} parts passed"


def _expected(result: TimerTestResult) -> str:
    if result.runs is not None:
        return f"{result.test}, {result.runs} times"
    seconds = format_seconds(result.expected_seconds or 0.0)
    return seconds if result.test == KNOWN_TIME else f"below {seconds}"


def _actual(result: TimerTestResult) -> str:
    if result.seconds is not None:
        return format_seconds(result.seconds)
    return f"{result.right} times"
