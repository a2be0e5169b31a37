"""The panels of a verify run: the matrix of checks, the failures, the cases."""

from __future__ import annotations

from collections.abc import Sequence

from losscli.cases import Case, distinct_names
from losscli.report.html.panel import Cell, Finding, Panel, Part, Row, State, Table, without_shared
from losscli.report.phrases import count, format_ulp
from losscli.runs.records import FAIL, PASS, SKIPPED, WARN, VerifyResult
from losscli.verify.repeating import line

_STATES: dict[str, State] = {FAIL: "bad", WARN: "warn", PASS: "good", SKIPPED: "off"}
_WORST_FIRST = (FAIL, WARN, PASS, SKIPPED)
_LEAD = (
    "A row is a check, a column a loss. A cell counts the cases that passed (✓), or those that "
    "failed (✗) or warned (!) of all; it is empty where the check does not apply."
)

Results = Sequence[VerifyResult]


def matrix(results: Results) -> Panel:
    """Return the panel of the matrix, with each failure and warning on its smallest case."""
    asked = [r for r in results if not r.shrunk_from]
    losses = list(dict.fromkeys(r.case.loss for r in asked))
    checks = list(dict.fromkeys(r.check for r in asked))
    found: dict[tuple[str, str], list[VerifyResult]] = {}
    for result in asked:
        found.setdefault((result.check, result.case.loss), []).append(result)
    rows = tuple(
        Row((check, *(_cell(found.get((check, loss), [])) for loss in losses))) for check in checks
    )
    table = Table("Checks by loss", ("check", *losses), rows, upright=len(losses) > 6)
    return Panel("checks", "Checks", _LEAD, tables=(table,), findings=_findings(results, asked))


def _cell(results: Results) -> Cell:
    if not results:
        return Cell("")
    ran = [r for r in results if r.status != SKIPPED]
    worst = next(s for s in _WORST_FIRST if any(r.status == s for r in results))
    if not ran:
        return Cell("skip", "off")
    number = sum(r.status == worst for r in ran)
    text = (
        f"✓ {number}" if worst == PASS else f"{'✗' if worst == FAIL else '!'} {number}/{len(ran)}"
    )
    return Cell(text, _STATES[worst])


def _findings(results: Results, asked: Results) -> tuple[Finding, ...]:
    """Return failures, then warnings, passes with a reason, and what was skipped."""
    found = []
    for status in (FAIL, WARN, PASS):
        groups: dict[tuple[str, str, str], list[VerifyResult]] = {}
        for r in results:
            if r.status == status and r.reason:
                groups.setdefault((r.implementation, r.check, r.case.loss), []).append(r)
        for key, group in groups.items():
            of = [r for r in asked if (r.implementation, r.check, r.case.loss) == key]
            found.append(_finding(group, of))
    skipped: dict[str, list[VerifyResult]] = {}
    for r in asked:
        if r.status == SKIPPED:
            skipped.setdefault(r.reason, []).append(r)
    for reason, group in skipped.items():
        checks = ", ".join(dict.fromkeys(r.check for r in group))
        found.append(Finding(f"skipped {checks} in {count(len(group), 'case')}", reason, "off"))
    return tuple(found)


def _finding(group: Results, asked: Results) -> Finding:
    smallest = min(group, key=lambda result: result.case.elements)
    cases = sum(not r.shrunk_from for r in group)
    title = (
        f"{smallest.status.upper()} {smallest.check}, {smallest.implementation}: "
        f"{smallest.case.name}"
    )
    more = [f"In {cases} of {count(len(asked), 'case')}."] if cases > 1 else []
    more += [f"Shrunk from {smallest.shrunk_from}."] if smallest.shrunk_from else []
    text = " ".join([f"{smallest.told}.", *more])
    lines = () if smallest.status == PASS else (line(smallest),)
    return Finding(title, text, _STATES[smallest.status], lines)


def figures(results: Results, styles: dict[str, int], prefix: str) -> tuple[Panel, Panel]:
    """Return the panel of the full table, a row for each case, and that of the cases."""
    groups: dict[tuple[Case, str], list[VerifyResult]] = {}
    for result in results:
        if not result.shrunk_from:
            groups.setdefault((result.case, result.implementation), []).append(result)
    names = distinct_names(case for case, _ in groups)
    operands = dict.fromkeys(name for case, _ in groups for name in case.spec.differentiable)
    headers = (
        *("case", "implementation", "checks", "not passed", "rel", "ulp", "torch ulp"),
        *(f"{name} gradient ulp" for name in operands),
    )
    rows, parts = [], []
    for index, ((case, implementation), group) in enumerate(groups.items(), 1):
        key = f"{prefix}c{index}"
        rows.append(
            Row(
                (
                    Cell(names[case], link=key), implementation, *_counts(group),
                    *_value(group), *(_gradient(group, name) for name in operands),
                ),
                styles[implementation],
            )
        )  # fmt: skip
        parts.append(_part(key, names[case], implementation, group))
    shown, kept = without_shared(headers, rows, keep=3)
    table = Table("All cases", shown, kept, words=2)
    lead = (
        "The checks of each case; the error of the loss, relative and in ulp, beside that of "
        "PyTorch's formula; and the largest error of an element of each gradient."
    )
    full = Panel("results", "All results", lead, tables=(table,))
    return full, Panel("cases", "Cases", "Each check of each case.", parts=tuple(parts))


def _counts(group: Results) -> tuple[str | Cell, ...]:
    ran = [r for r in group if r.status != SKIPPED]
    bad = [r for r in ran if r.status in (FAIL, WARN)]
    if not bad:
        return f"{len(ran)}", ""
    worst = next(s for s in _WORST_FIRST if any(r.status == s for r in bad))
    words = ", ".join(f"{r.status.upper()} {r.check}" for r in bad)
    return f"{len(ran)}", Cell(words, _STATES[worst])


def _value(group: Results) -> tuple[str, str, str]:
    value = next((r for r in group if r.check == "value"), None)
    if value is None:
        return "", "", ""
    relative = value.error.value_rel
    own = value.error.value_ulp if value.error.value_ulp is not None else value.error.grad_ulp
    return (
        "" if relative is None else f"{relative:.1e}",
        _ulp(own),
        _ulp(value.reference_error.value_ulp),
    )


def _gradient(group: Results, operand: str) -> str:
    found = next((r for r in group if r.check == f"{operand}_gradient"), None)
    if found is None:
        return ""
    value = found.error.value_ulp
    return _ulp(found.error.grad_ulp if value is None else value)


def _ulp(ulp: float | None) -> str:
    return "" if ulp is None else format_ulp(ulp)


def _part(key: str, name: str, implementation: str, group: Results) -> Part:
    """Return the section of a case: one row for each check that says more than that it passed."""
    told = [r for r in group if r.status != PASS or r.reason or _worst(r) is not None]
    quiet = [r.check for r in group if r not in told]
    rows = tuple(
        Row((r.check, Cell(r.status, _STATES[r.status]), _ulp(_worst(r)), r.told)) for r in told
    )
    headers, rows = without_shared(("check", "status", "ulp", "reason"), rows, keep=2)
    worst = next(s for s in _WORST_FIRST if any(r.status == s for r in group))
    state: State = _STATES[worst] if worst in (FAIL, WARN) else ""
    summary = f"{implementation}: {worst}"
    notes = (f"Passed: {', '.join(quiet)}.",) if quiet else ()
    return Part(key, name, summary, Table("", headers, rows, words=2), notes, state)


def _worst(result: VerifyResult) -> float | None:
    found = [u for u in (result.error.value_ulp, result.error.grad_ulp) if u is not None]
    return max(found, default=None)
