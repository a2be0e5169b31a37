"""The panels of a verify run: the matrix of checks, the failures, the cases."""

from __future__ import annotations

from collections.abc import Sequence

from losscli.cases.case import distinct_names
from losscli.render.html.panel import Cell, Note, Panel, Part, Row, State, Table, telling_table
from losscli.runs.grouping import grouped
from losscli.runs.records import FAIL, PASS, SKIPPED, WARN, VerifyResult
from losscli.units import format_ulp
from losscli.verify.repeating import line
from losscli.views.errors import VALUE, by_case, check, own_ulp, worst
from losscli.views.phrases import count
from losscli.views.verify import alike

_STATES: dict[str, State] = {FAIL: "bad", WARN: "warn", PASS: "good", SKIPPED: "off"}
_SIGNS = {FAIL: "✗", WARN: "!", PASS: "✓"}
_LEAD = (
    "A row is a check, a column a loss. A cell counts the cases that passed (✓), or those that "
    "failed (✗) or warned (!) of all; it is empty where the check does not apply."
)

Results = Sequence[VerifyResult]


def matrix(results: Results) -> Panel:
    """Return the panel of the matrix, with each failure and warning on its smallest case."""
    asked = [r for r in results if not r.shrunk_from]
    losses = list(dict.fromkeys(r.case.loss for r in asked))
    found = grouped(asked, lambda result: (result.check, result.case.loss))
    rows = tuple(
        Row((check, *(_cell(found.get((check, loss), [])) for loss in losses)))
        for check in dict.fromkeys(r.check for r in asked)
    )
    table = Table("Checks by loss", ("check", *losses), rows, upright=len(losses) > 6)
    return Panel("checks", "Checks", _LEAD, tables=(table,), notes=_notes(results, asked))


def _cell(results: Results) -> Cell:
    if not results:
        return Cell("")
    ran = [r for r in results if r.status != SKIPPED]
    if not ran:
        return Cell("skip", "off")
    status = worst(ran)
    number = sum(r.status == status for r in ran)
    of = "" if status == PASS else f"/{len(ran)}"
    return Cell(f"{_SIGNS[status]} {number}{of}", _STATES[status])


def _notes(results: Results, asked: Results) -> tuple[Note, ...]:
    """Return failures, then warnings, passes with a reason, and what was skipped."""
    notes = [_note(*found) for found in alike(results)]
    skipped = grouped((r for r in asked if r.status == SKIPPED), lambda result: result.reason)
    for reason, group in skipped.items():
        checks = ", ".join(dict.fromkeys(r.check for r in group))
        notes.append(Note(f"skipped {checks} in {count(len(group), 'case')}", reason, "off"))
    return tuple(notes)


def _note(smallest: VerifyResult, cases: int, of: int) -> Note:
    title = (
        f"{smallest.status.upper()} {smallest.check}, {smallest.implementation}: "
        f"{smallest.case.name}"
    )
    more = [f"In {cases} of {count(of, 'case')}."] if cases > 1 else []
    more += [f"Shrunk from {smallest.shrunk_from}."] if smallest.shrunk_from else []
    text = " ".join([f"{smallest.told}.", *more])
    again = line(smallest)
    lines = () if smallest.status == PASS or not again else (again,)
    return Note(title, text, _STATES[smallest.status], lines)


def figures(results: Results, styles: dict[str, int], prefix: str) -> tuple[Panel, Panel]:
    """Return the panel of the full table, a row for each case, and that of the cases."""
    groups = by_case([result for result in results if not result.shrunk_from])
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
                    *_value(group), *(format_ulp(own_ulp(check(group, name))) for name in operands),
                ),
                styles[implementation],
            )
        )  # fmt: skip
        parts.append(_part(key, names[case], implementation, group))
    table = telling_table("All cases", headers, rows, keep=3)
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
    words = ", ".join(f"{r.status.upper()} {r.check}" for r in bad)
    return f"{len(ran)}", Cell(words, _STATES[worst(bad)])


def _value(group: Results) -> tuple[str, str, str]:
    value = check(group, VALUE)
    if value is None:
        return "", "", ""
    relative = "" if value.error.value_rel is None else f"{value.error.value_rel:.1e}"
    return relative, format_ulp(own_ulp(value)), format_ulp(value.reference_error.value_ulp)


def _part(key: str, name: str, implementation: str, group: Results) -> Part:
    """Return the section of a case: one row for each check that says more than that it passed."""
    shown = [r for r in group if r.status != PASS or r.reason or r.error.ulp is not None]
    others = [r.check for r in group if r not in shown]
    rows = [
        Row((r.check, Cell(r.status, _STATES[r.status]), format_ulp(r.error.ulp), r.told))
        for r in shown
    ]
    status = worst(group)
    state: State = _STATES[status] if status in (FAIL, WARN) else ""
    notes = (f"Passed: {', '.join(others)}.",) if others else ()
    table = telling_table("", ("check", "status", "ulp", "reason"), rows, keep=2)
    return Part(key, name, f"{implementation}: {status}", table, notes, state)
