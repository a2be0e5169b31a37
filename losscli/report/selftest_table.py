"""The report of verify's self-test: the check that caught each wrong implementation.

A row is an implementation, a column a loss. A cell of a wrong implementation has the first check
that fails it, or SURVIVED; a cell of a correct one has ``passed``, or FAILED with the check.
"""

from __future__ import annotations

from losscli.report.tables import fill
from losscli.runs.records import Run, SelfTestResult

SURVIVED = "SURVIVED"


def tables(run: Run, width: int | None) -> list[tuple[str, list[str], list[list[str]]]]:
    """Return the title, headers and rows of the one table."""
    results = _results(run)
    losses = list(dict.fromkeys(result.case.loss for result in results))
    by_name: dict[str, dict[str, SelfTestResult]] = {}
    for result in results:
        by_name.setdefault(result.implementation, {})[result.case.loss] = result
    rows = [
        [name, *(_cell(own[loss]) if loss in own else "-" for loss in losses)]
        for name, own in by_name.items()
    ]
    return [("", ["implementation", *losses], rows)]


def notes(run: Run) -> list[str]:
    """Return each unexpected result in full."""
    return [fill(_complaint(result)) for result in _results(run) if result.surprising]


def summary(run: Run) -> str:
    """Return the summary line."""
    results = _results(run)
    wrong = [result for result in results if not result.honest]
    honest = [result for result in results if result.honest]
    killed = sum(result.failed for result in wrong)
    passed = sum(not result.failed for result in honest)
    return (
        f"self-test: {killed} of {len(wrong)} wrong implementations caught, "
        f"{passed} of {len(honest)} honest ones passed"
    )


def _results(run: Run) -> list[SelfTestResult]:
    return [result for result in run.results if isinstance(result, SelfTestResult)]


def _cell(result: SelfTestResult) -> str:
    if result.honest:
        return f"FAILED {result.check}" if result.failed else "passed"
    return result.check if result.failed else SURVIVED


def _complaint(result: SelfTestResult) -> str:
    name = f"{result.implementation}, {result.case.loss}"
    if result.honest:
        return f"FAILED {name}, {result.check} of {result.case.name}: {result.reason}"
    return f"{SURVIVED} {name}: no check fails it"
