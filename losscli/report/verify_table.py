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
from losscli.report.phrases import count, format_ulp, skips
from losscli.report.tables import GAP, fill
from losscli.runs.records import FAIL, PASS, SKIPPED, WARN, Run, VerifyResult, VerifyStatus
from losscli.verify.repeating import line

FEW_ROWS = 12
"""Most rows of figures that a terminal report shows below the table."""

Results = Sequence[VerifyResult]
Table = tuple[str, list[str], list[list[str]]]


def tables(run: Run, width: int | None) -> list[Table]:
    """Return the title, headers and rows of each table, within a width; None is any."""
    results = _asked(run)
    losses = list(dict.fromkeys(result.case.loss for result in results))
    checks = list(dict.fromkeys(result.check for result in results))
    columns = {loss: [_cell(results, check, loss) for check in checks] for loss in losses}
    found: list[Table] = [
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
    statuses = {result.status for result in _asked(run)}
    parts += ["FAIL M/N: M of N cases failed"] * (FAIL in statuses)
    parts += ["WARN M/N: M of N cases are less accurate than they could be"] * (WARN in statuses)
    parts.append("-: the check does not apply")
    if verify_figures.VERDICT in headers:
        parts.append(verify_figures.LEGEND)
    return "; ".join(parts)


def notes(run: Run) -> list[str]:
    """Return failures, warnings, passes with a reason, loosened tolerances and skipped checks.

    Of a loss whose errors are measured at its terms, also why.
    """
    results = _results(run)
    texts = []
    for status in (FAIL, WARN, PASS):
        groups: dict[tuple[str, str, str], list[VerifyResult]] = {}
        for r in results:
            if r.status == status and r.reason:
                groups.setdefault((r.implementation, r.check, r.case.loss), []).append(r)
        for key, group in groups.items():
            asked = [r for r in results if (r.implementation, r.check, r.case.loss) == key]
            texts += _note(group, sum(map(_counts, asked)))
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
    results = _asked(run)
    statuses = Counter(result.status for result in results)
    cases = {r.case for r in results if r.status != SKIPPED}
    largest = _largest_ulp(results)
    return (
        f"verify: {count(statuses[PASS], 'check')} of {count(len(cases), 'case')} passed, "
        f"{count(statuses[WARN], 'warning')}, {statuses[FAIL]} failed, "
        f"{statuses[SKIPPED]} skipped{f'; largest error {largest}' if largest else ''}"
    )


def _results(run: Run) -> list[VerifyResult]:
    return [result for result in run.results if isinstance(result, VerifyResult)]


def _asked(run: Run) -> list[VerifyResult]:
    """Return the results without those that show a failure again on a smaller case."""
    return [result for result in _results(run) if not result.shrunk_from]


def _counts(result: VerifyResult) -> bool:
    return result.status != SKIPPED and not result.shrunk_from


def _cell(results: Results, check: str, loss: str) -> str:
    """Return the cell of a check and a loss."""
    asked = [result for result in results if result.check == check]
    if all(result.status == SKIPPED for result in asked):
        return "skipped"  # once for all losses, where the device is why
    ran = [r for r in asked if r.case.loss == loss and r.status != SKIPPED]
    if not ran:
        return "skipped" if any(r.case.loss == loss for r in asked) else "-"
    statuses = Counter(result.status for result in ran)
    worst: VerifyStatus = FAIL if statuses[FAIL] else WARN if statuses[WARN] else PASS
    text = f"pass {len(ran)}" if worst == PASS else f"{worst.upper()} {statuses[worst]}/{len(ran)}"
    return ", ".join(part for part in (text, _largest_ulp(ran)) if part)


def _largest_ulp(results: Results) -> str:
    errors = [result.error for result in results]
    ulps = [ulp for error in errors for ulp in (error.value_ulp, error.grad_ulp) if ulp is not None]
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


def _note(group: Results, asked: int) -> list[str]:
    """Return the note on a group of failures, shown on its smallest case."""
    smallest = min(group, key=lambda result: result.case.elements)
    cases = sum(map(_counts, group))
    status = smallest.status
    name = f"{smallest.case.name}, {smallest.implementation}, {smallest.check}"
    said = {FAIL: "Fails", WARN: "Warns"}.get(status, "Alike")
    more = [f"{said} in {cases} of {asked} cases"] if cases > 1 else []
    more += [f"Shrunk from {smallest.shrunk_from}"] if smallest.shrunk_from else []
    text = fill(". ".join([f"{status.upper()} {name}: {smallest.told}", *more]))
    return [text] if status == PASS else [text, fill(line(smallest)), ""]
