"""The reports of the self-tests of checks, timer and judge."""

from collections import Counter
from collections.abc import Sequence

from losscli.judge.selftest import Judged, counted
from losscli.runs.grouping import grouped
from losscli.runs.records import FAIL, KNOWN_TIME, Run, SelfTestResult, TimerTestResult
from losscli.units import format_seconds
from losscli.views.document import Document, Notes, Part, Sentence, Table
from losscli.views.phrases import caption, count

SURVIVED = "SURVIVED"
_TIMER_LEGEND = (
    "known time: a call that keeps the device busy for as long as expected; overhead: a call that "
    "does nothing; same, faster, slower: what comparing two calls finds, of which one may be "
    "longer by 5 %"
)


def of_checks(run: Run) -> Document:
    """Return the report of the checks' self-test."""
    results = run.of(SelfTestResult)
    rows = []
    for name, own in grouped(results, lambda result: result.implementation).items():
        found = Counter(map(_cell, own)).most_common()
        rows.append([name, str(len(own)), ", ".join(f"{cell} {number}" for cell, number in found)])
    wrong, legitimate = ([r.failed for r in results if r.legitimate == it] for it in (False, True))
    answer = f"self-test: {sum(wrong)} of {len(wrong)} wrong implementations caught"
    answer += f", {legitimate.count(False)} of {len(legitimate)} legitimate ones passed"
    headers = ["implementation", "losses", "failed by, and for how many losses"]
    table = Table(headers, rows, align=["left", "right", "left"], wraps=True)
    complaints = [_complaint(result) for result in results if result.surprising]
    return Sentence(answer), Part(caption(run), (table,)), Notes(complaints)


def _cell(result: SelfTestResult) -> str:
    if result.legitimate:
        return f"FAILED {result.check}" if result.failed else "passed"
    return result.check if result.failed else SURVIVED


def _complaint(result: SelfTestResult) -> str:
    name = f"{result.implementation}, {result.case.loss}"
    if result.legitimate:
        return f"FAILED {name}, {result.check} of {result.case.name}: {result.reason}"
    return f"{SURVIVED} {name}: no check fails it"


def of_timer(run: Run) -> Document:
    """Return the report of the timer's self-test."""
    results = run.of(TimerTestResult)
    passed = sum(result.status != FAIL for result in results)
    rows = []
    for r in results:
        actual = f"{r.right} times" if r.seconds is None else format_seconds(r.seconds)
        rows.append([r.test, r.subject, _expected(r), actual, r.status])
    return (
        Sentence(f"self-test of the timer: {passed} of {len(results)} parts passed"),
        Part(caption(run), (Table(["test", "call", "expected", "found", "status"], rows),)),
        Notes([f"FAILED {r.test}, {r.subject}: {r.reason}" for r in results if r.status == FAIL]),
        Notes([_TIMER_LEGEND]),
    )


def _expected(result: TimerTestResult) -> str:
    if result.runs is not None:
        return f"{result.test}, {result.runs} times"
    seconds = format_seconds(result.expected_seconds or 0.0)
    return seconds if result.test == KNOWN_TIME else f"below {seconds}"


def of_judge(found: Sequence[Judged]) -> Document:
    """Return the report of the self-test of the judge."""
    rows = [[kind, *map(str, count)] for kind, count in counted(found).items()]
    lines = []
    for each in (each for each in found if not each.as_expected):
        codes = f" ({', '.join(each.codes)})" if each.codes else ""
        why = f": {each.reason}" if each.reason else ""
        got = f"{each.word}{codes}, expected {each.expected}{why}"
        lines.append(f"{each.file}, {each.what}: {got}")
    right = len(found) - len(lines)
    answer = f"self-test of the judge: {right} of {count(len(found), 'file')} judged as expected"
    table = Table(["files", "judged", "as expected", "cause named"], rows)
    return Sentence(answer), table, Notes(lines)
