"""The report of a verify run: a row per check, a column per loss, then each failure in full.

A cell counts the cases of a check and a loss, and has the largest error of an element, or of the
loss, in units in the last place if the check measures it: ``pass 54, 0.50 ulp``; or it has the
number of failures or warnings: ``FAIL 2/54``, ``WARN 1/54``. A check that was skipped in all cases
says so; ``-`` means that the check does not apply. The figures of each case follow if there are
few; Markdown has them all.

A failure is shown once for an implementation, a check and a loss: on the smallest case that has it,
with the count of the others and the line of Python that repeats it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from losscli.report import verify_figures
from losscli.report.phrases import count, skips
from losscli.report.tables import GAP, Tables, fill
from losscli.report.verify_figures import asked, worst
from losscli.runs.grouping import grouped
from losscli.runs.records import FAIL, PASS, SKIPPED, WARN, Run, VerifyResult
from losscli.units import format_ulp
from losscli.verify.repeating import line

FEW_ROWS = 12
"""Most rows of figures that a terminal report shows below the table."""

Results = Sequence[VerifyResult]


def tables(run: Run, width: int | None) -> Tables:
    """Return the title, headers and rows of each table, within a width; None is any."""
    results = asked(run)
    losses = dict.fromkeys(result.case.loss for result in results)
    checks = list(dict.fromkeys(result.check for result in results))
    columns = {loss: [_cell(results, check, loss) for check in checks] for loss in losses}
    found: Tables = [
        (
            "",
            ["check", *part],
            [list(row) for row in zip(checks, *map(columns.get, part), strict=True)],
        )
        for part in _parts(checks, columns, width)
    ]
    headers, rows = verify_figures.table(run, width)
    if rows and (width is None or len(rows) <= FEW_ROWS):
        found.append(("", headers, rows))
    return found


def legend(run: Run, headers: Collection[str]) -> str:
    """Return what the cells and columns of the tables mean."""
    parts = ["pass N, U ulp: N cases passed, with the largest error in units in the last place"]
    statuses = {result.status for result in asked(run)}
    parts += ["FAIL M/N: M of N cases failed"] * (FAIL in statuses)
    parts += ["WARN M/N: M of N cases are less accurate than they could be"] * (WARN in statuses)
    parts.append("-: the check does not apply")
    if verify_figures.VERDICT in headers:
        parts.append(verify_figures.LEGEND)
    return "; ".join(parts)


def alike(results: Results) -> Iterator[tuple[VerifyResult, int, int]]:
    """Yield the smallest failure of each implementation, check and loss, and two numbers of cases.

    These are how many cases fail so, and how many the check ran on. Then the warnings, then the
    passes that have a reason.
    """

    def key(result: VerifyResult) -> tuple[str, str, str]:
        return result.implementation, result.check, result.case.loss

    everything = grouped(results, key)
    for status in (FAIL, WARN, PASS):
        shown = (result for result in results if result.status == status and result.reason)
        for which, group in grouped(shown, key).items():
            smallest = min(group, key=lambda result: result.case.elements)
            yield smallest, sum(map(_counts, group)), sum(map(_counts, everything[which]))


def notes(run: Run) -> list[str]:
    """Return failures, warnings, passes with a reason, loosened tolerances and skipped checks.

    For a loss whose errors are measured at its terms, return why they are.
    """
    results = run.of(VerifyResult)
    texts = [text for found in alike(results) for text in _note(*found)]
    reasons = [
        f"{r.case.loss} has a tolerance of {r.tolerance}" for r in results if ":" in r.tolerance
    ]
    reasons += [
        f"{r.case.loss} is measured in ulp of the largest term of each element: {r.terms}"
        for r in results
        if r.terms
    ]
    texts += [fill(text) for text in (*dict.fromkeys(reasons), *skips(results))]
    return texts[:-1] if texts[-1:] == [""] else texts


def summary(run: Run) -> str:
    """Return the summary line."""
    results = asked(run)
    statuses = Counter(result.status for result in results)
    cases = {r.case for r in results if r.status != SKIPPED}
    largest = _largest_ulp(results)
    return (
        f"verify: {count(statuses[PASS], 'check')} of {count(len(cases), 'case')} passed, "
        f"{count(statuses[WARN], 'warning')}, {statuses[FAIL]} failed, "
        f"{statuses[SKIPPED]} skipped{f'; largest error {largest}' if largest else ''}"
    )


def _counts(result: VerifyResult) -> bool:
    return result.status != SKIPPED and not result.shrunk_from


def _cell(results: Results, check: str, loss: str) -> str:
    of_check = [result for result in results if result.check == check]
    if all(result.status == SKIPPED for result in of_check):
        return "skipped"  # once for all losses, where the device is why
    ran = [r for r in of_check if r.case.loss == loss and r.status != SKIPPED]
    if not ran:
        return "skipped" if any(r.case.loss == loss for r in of_check) else "-"
    status = worst(ran)
    bad = sum(result.status == status for result in ran)
    text = f"pass {len(ran)}" if status == PASS else f"{status.upper()} {bad}/{len(ran)}"
    return ", ".join(part for part in (text, _largest_ulp(ran)) if part)


def _largest_ulp(results: Results) -> str:
    ulps = [result.error.ulp for result in results if result.error.ulp is not None]
    return f"{format_ulp(max(ulps))} ulp" if ulps else ""


def _parts(
    checks: Sequence[str], columns: dict[str, list[str]], width: int | None
) -> Iterator[list[str]]:
    """Distribute the losses over as many tables as needed to stay within a width."""
    first = max(map(len, ("check", *checks)))
    part: list[str] = []
    room = 0
    for loss, cells in columns.items():
        need = GAP + max(map(len, (loss, *cells)))
        if part and width is not None and need > room:
            yield part
            part = []
        room = (room if part else (width or 0) - first) - need
        part.append(loss)
    yield part


def _note(smallest: VerifyResult, cases: int, of: int) -> list[str]:
    status = smallest.status
    name = f"{smallest.case.name}, {smallest.implementation}, {smallest.check}"
    said = {FAIL: "Fails", WARN: "Warns"}.get(status, "Alike")
    more = [f"{said} in {cases} of {of} cases"] if cases > 1 else []
    more += [f"Shrunk from {smallest.shrunk_from}"] if smallest.shrunk_from else []
    text = fill(". ".join([f"{status.upper()} {name}: {smallest.told}", *more]))
    again = [fill(line(smallest))] if line(smallest) else []
    return [text] if status == PASS else [text, *again, ""]
