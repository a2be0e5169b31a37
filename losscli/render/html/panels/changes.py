"""The panels of a comparison: its verdict, its ratios with the noise, its rows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import PurePath

from losscli.compare.record import (
    NOT_COMPARABLE,
    ComparedRow,
    ComparedRun,
    ComparisonRecord,
)
from losscli.render.html.forest_plot import Baseline, ForestRow, Mark, forest_plot, ratio
from losscli.render.html.measured import slug
from losscli.render.html.panel import Cell, Group, Note, Panel, Row, State, Table
from losscli.render.html.svg import Plot
from losscli.runs.grouping import grouped
from losscli.units import format_seconds
from losscli.views.bench import SHORT_PASSES
from losscli.views.phrases import count, first_of

_FEW = 16
"""Most rows that a plot shows: of more, those whose ratio is farthest from 1."""
_LEAD = (
    "The time of {after} over that of {before}: right of the dashed line the new run is slower. "
    "All intervals hold together with {confidence:g} % confidence. The grey band is the noise "
    "from run to run, {noise:.1f} %, {known}."
)
_STATES: dict[str, State] = {"slower": "bad", "faster": "good", "same": "", "unclear": "warn"}


def panels(record: ComparisonRecord, styles: Mapping[str, int]) -> list[Panel]:
    """Return the panels of a comparison; that of each run where there are several."""
    found = [_summary(record)]
    for index, one in enumerate(record.comparisons, 1):
        end = f"-{index}" if len(record.comparisons) > 1 else ""
        found += [_forest(record, one, styles, end), _rows(one, styles, end)]
    return found


def _summary(record: ComparisonRecord) -> Panel:
    lines, notes = [], []
    for one in record.comparisons:
        verdicts = Counter(row.verdict for row in one.rows)
        counts = [f"{number} {verdict}" for verdict, number in verdicts.most_common()]
        words = ", ".join([count(len(one.rows), "row"), *counts])
        lines.append(f"{short(one.run)} against {short(record.baseline)}: {words}")
        notes += _notes(record, one)
    sentence = f"{'; '.join(lines)}."
    gate = [] if record.threshold is None else [f"{100 * record.threshold:g} %"]
    if gate := [*gate, *record.limits]:
        fate = "is closed: it failed" if record.failed else "is passed"
        sentence += f" The gate of {', '.join(gate)} {fate}."
    state: State = "good" if gate else ""
    if any(row.regression for one in record.comparisons for row in one.rows) or record.failed:
        state = "bad"
    return Panel("verdict", "Verdict", sentence=sentence, notes=tuple(notes), state=state)


def _notes(record: ComparisonRecord, one: ComparedRun) -> list[Note]:
    notes = []
    for unlike in one.differences:
        apart = unlike.grade == NOT_COMPARABLE
        title = f"{NOT_COMPARABLE if apart else 'different'}: {unlike.fact}"
        notes.append(Note(title, f"{unlike.before}, then {unlike.after}", "bad" if apart else ""))
    notes += [
        Note(f"slower: {_name(row)}", f"{ratio(row.ratio)} of the time before.", "bad")
        for row in one.rows
        if row.regression
    ]
    notes += [
        Note(f"more {figure}: {_name(row)}", "Beyond the limit of the comparison.", "bad")
        for row in one.rows
        for figure in row.grown
    ]
    for where, rows in ((record.baseline, one.only_before), (one.run, one.only_after)):
        if rows:
            names = [
                f"{r.case}, {r.implementation}{f' ({r.reason})' if r.reason else ''}" for r in rows
            ]
            title = f"timed only in {where}: {count(len(rows), 'row')}"
            notes.append(Note(title, first_of(names, 5, "; "), "warn"))
    return notes


def _forest(
    record: ComparisonRecord, one: ComparedRun, styles: Mapping[str, int], end: str
) -> Panel:
    title = f"Changes: {short(one.run)} against {short(record.baseline)}"
    known = [row for row in one.rows if row.ratio_low > 0 and row.ratio > 0]
    if not known:
        return Panel(f"changes{end}", title, missing="Left out: both runs timed no row in common.")
    base = Baseline("the baseline", one.noise, "faster", "slower")
    farthest = sorted(known, key=lambda row: abs(math.log(row.ratio)), reverse=True)
    name = f"changes{end}"
    many = len(known) > _FEW
    shown = sorted(farthest[:_FEW], key=lambda r: -r.ratio) if many else known

    def plot(key: str, title: str, rows: Sequence[ComparedRow], of: str) -> Plot:
        words = f"Ratios of {count(len(rows), 'row')} of {of}."
        return forest_plot(f"{name}-{key}", title, words, _forest_rows(rows, styles), base)

    plots = [
        plot(slug(pass_), f"Time over the baseline's, {long}", rows, f"the pass {long}")
        for pass_, rows in _by_pass(shown).items()
        for long in [_long(pass_)]
    ]
    groups = []
    for pass_, rows in _by_pass(known).items() if many else ():
        by_loss = grouped(rows, lambda row: row.case.partition(" ")[0])
        each = (
            plot(f"{slug(pass_)}-{slug(loss)}", f"{loss}, {_long(pass_)}", found, loss)
            for loss, found in by_loss.items()
        )
        groups.append(Group(f"All {len(rows)} rows, {_long(pass_)}", tuple(each)))
    how = "assumed"
    if any(n.controls and not n.why for n in one.noises):
        how = f"measured on {count(one.controls, 'row')} of PyTorch's own implementations"
    elif any(n.from_processes for n in one.noises):
        how = "measured between processes"
    lead = _LEAD.format(
        after=short(one.run), before=short(record.baseline), confidence=100 * record.confidence,
        noise=100 * one.noise,
        known=how,
    )  # fmt: skip
    if many:
        lead += f" Shown are the {_FEW} rows that changed most."
    return Panel(name, title, lead, tuple(plots), tuple(groups))


def _forest_rows(rows: Sequence[ComparedRow], styles: Mapping[str, int]) -> list[ForestRow]:
    """Return a row for each case, with a mark for each implementation."""
    tables = {case: {r.table for r in of} for case, of in grouped(rows, lambda r: r.case).items()}

    def title(row: ComparedRow) -> str:
        return f"{row.case} ({row.table})" if len(tables[row.case]) > 1 else row.case

    return [
        ForestRow(
            case,
            tuple(
                Mark(
                    styles[row.implementation], row.implementation,
                    row.ratio, row.ratio_low, row.ratio_high, row.verdict,
                )
                for row in found
            ),
        )
        for case, found in grouped(rows, title).items()
    ]  # fmt: skip


def _by_pass(rows: Sequence[ComparedRow]) -> dict[str, list[ComparedRow]]:
    """Return the rows of each pass, the forward pass first."""
    return grouped(sorted(rows, key=lambda row: (len(row.pass_), row.pass_)), lambda r: r.pass_)


def _rows(one: ComparedRun, styles: Mapping[str, int], end: str) -> Panel:
    headers = (
        *("case", "pass", "implementation", "verdict"),
        *("before", "after", "ratio", "interval"),
    )
    rows = tuple(
        Row(
            (
                row.case,
                SHORT_PASSES.get(row.pass_, row.pass_),
                row.implementation,
                Cell(row.verdict, _STATES[row.verdict]),
                _seconds(row.seconds_before),
                _seconds(row.seconds_after),
                f"{row.ratio:.3f}",
                f"{row.ratio_low:.3f}-{row.ratio_high:.3f}",
            ),
            styles[row.implementation],
        )
        for row in one.rows
    )
    table = Table(f"All rows of {short(one.run)}", headers, rows, words=4)
    return Panel(f"results{end}", f"All rows of {short(one.run)}", tables=(table,))


def short(name: str) -> str:
    """Return the name of a file without its folders."""
    return PurePath(name).name or name


def _name(row: ComparedRow) -> str:
    return f"{row.case}, {row.implementation}, {_long(row.pass_)}"


def _long(pass_: str) -> str:
    return pass_.replace("_", "+")


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else format_seconds(seconds)
