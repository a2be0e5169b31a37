"""The reports of the self-tests of checks and timer."""

from losscli.runs.grouping import grouped
from losscli.runs.records import FAIL, KNOWN_TIME, Run, SelfTestResult, TimerTestResult
from losscli.units import format_seconds
from losscli.views.document import Document, Notes, Part, Sentence, Table
from losscli.views.phrases import caption

SURVIVED = "SURVIVED"


def of_checks(run: Run) -> Document:
    """Return the report of the checks' self-test."""
    results = run.of(SelfTestResult)
    losses = list(dict.fromkeys(result.case.loss for result in results))
    rows = []
    for name, own in grouped(results, lambda result: result.implementation).items():
        cells = {result.case.loss: _cell(result) for result in own}
        rows.append([name, *(cells.get(loss, "-") for loss in losses)])
    failed = grouped(results, lambda result: result.honest)
    wrong, legitimate = ([r.failed for r in failed.get(kind, [])] for kind in (False, True))
    answer = (
        f"self-test: {sum(wrong)} of {len(wrong)} wrong implementations caught, "
        f"{legitimate.count(False)} of {len(legitimate)} legitimate ones passed"
    )
    table = Table(["implementation", *losses], rows)
    complaints = [_complaint(result) for result in results if result.surprising]
    return Sentence(answer), Part(caption(run), (table,)), Notes(complaints)


def _cell(result: SelfTestResult) -> str:
    if result.honest:
        return f"FAILED {result.check}" if result.failed else "passed"
    return result.check if result.failed else SURVIVED


def _complaint(result: SelfTestResult) -> str:
    name = f"{result.implementation}, {result.case.loss}"
    if result.honest:
        return f"FAILED {name}, {result.check} of {result.case.name}: {result.reason}"
    return f"{SURVIVED} {name}: no check fails it"


def of_timer(run: Run) -> Document:
    """Return the report of the timer's self-test."""
    results = run.of(TimerTestResult)
    passed = sum(result.status != FAIL for result in results)
    rows = [[r.test, r.subject, _expected(r), _actual(r), r.status] for r in results]
    failed = (result for result in results if result.status == FAIL)
    return (
        Sentence(f"self-test of the timer: {passed} of {len(results)} parts passed"),
        Part(caption(run), (Table(["test", "of", "expected", "found", "status"], rows),)),
        Notes([f"{result.test}, {result.subject}: {result.reason}" for result in failed]),
    )


def _expected(result: TimerTestResult) -> str:
    if result.runs is not None:
        return f"{result.test}, {result.runs} times"
    seconds = format_seconds(result.expected_seconds or 0.0)
    return seconds if result.test == KNOWN_TIME else f"below {seconds}"


def _actual(result: TimerTestResult) -> str:
    if result.seconds is not None:
        return format_seconds(result.seconds)
    return f"{result.right} times"
