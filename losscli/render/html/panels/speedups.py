"""The panel of speedups over the reference, as a forest plot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import geometric_mean

from losscli.cases.case import Case
from losscli.render.html.forest_plot import (
    Baseline,
    ForestRow,
    Mark,
    forest_plot,
    interval,
    ratio,
)
from losscli.render.html.measured import Measured, slug
from losscli.render.html.panel import Group, Panel, Row, Table
from losscli.render.html.svg import Plot
from losscli.runs.columns import REFERENCE
from losscli.runs.grouping import grouped
from losscli.runs.judgements import SAME_WITHIN
from losscli.runs.records import BenchResult, Speedup
from losscli.views.phrases import count

_TITLE = "Speedups"
_FEW = 12
"""Most cases of a pass that are all shown at once."""
_MOST = 200
"""Most cases of a pass that have a row each; of more, the tables have the ratios."""
_LEAD = (
    "The time of {base} over that of each implementation: right of the dashed line is faster. "
    "A bar is the interval that holds the ratio with a confidence of 95 %; within the grey band of "
    "{band:g} % two times count as the same. {more}"
)
_MEANS = (
    "Each row is a loss: the mark is the geometric mean over its cases, the bar reaches from the "
    "least ratio to the largest."
)


def panel(measured: Measured) -> Panel:
    """Return the panel."""
    name = _baseline(measured)
    if name is None:
        reason = "no implementation was timed beside another"
        return Panel("speedups", _TITLE, missing=f"Left out: {reason}.")
    base = Baseline(name, SAME_WITHIN)
    plots: list[Plot] = []
    groups: list[Group] = []
    means = False
    rows: list[Row] = []
    for how, results in measured.by_pass.items():
        cells = _cells(measured, results, name)
        rows += _figures(how, cells)
        every = [row for found in cells.values() for row in found]
        if not every:
            continue
        several = len(every) > _FEW
        shown = [_mean(loss, found) for loss, found in cells.items()] if several else every
        what = "geometric mean of each loss" if several else "each case"
        plots.append(
            forest_plot(
                f"speedup-{slug(how)}", f"Speedup over {name}, {how}",
                f"Speedups over {name}, {what}: {_description(shown)}.", shown, base,
            )
        )  # fmt: skip
        means = means or several
        if several and len(every) <= _MOST:
            groups.append(_group(how, name, cells, base))
    headers = ("pass", "case", "implementation", "speedup", "interval")
    table = Table(f"Speedups over {name}", headers, tuple(rows), words=3)
    lead = _LEAD.format(base=name, band=100 * SAME_WITHIN, more=_MEANS if means else "")
    return Panel("speedups", _TITLE, lead, tuple(plots), tuple(groups), behind=(table,))


def _baseline(measured: Measured) -> str | None:
    """Return what others are compared with: the reference, else what most ratios are to."""
    counts = Counter(
        other for result in measured.timed for other in result.ratios or result.speedup
    )
    if REFERENCE in counts:
        return REFERENCE
    return max(counts, key=lambda name: counts[name], default=None)


def _cells(
    measured: Measured, results: Sequence[BenchResult], base: str
) -> dict[str, list[ForestRow]]:
    """Return a row for each case, by loss."""
    known = [(result, found) for result in results if (found := speedup_to(result, base))]

    def row(case: Case, pairs: Sequence[tuple[BenchResult, Speedup]]) -> ForestRow:
        marks = [
            Mark(
                measured.styles[result.implementation], result.implementation,
                found.value, found.low, found.high, found.verdict,
            )
            for result, found in pairs
        ]  # fmt: skip
        return ForestRow(measured.names[case], tuple(sorted(marks, key=lambda m: m.style)))

    return {
        loss: [row(*each) for each in grouped(of_loss, lambda pair: pair[0].case).items()]
        for loss, of_loss in grouped(known, lambda pair: pair[0].case.loss).items()
    }


def speedup_to(result: BenchResult, base: str) -> Speedup | None:
    """Return the ratio to another implementation; older records have no interval."""
    found = result.ratios.get(base)
    if found is None and (value := result.speedup.get(base)):
        found = Speedup(value, value, value, confident=False)
    return found if found and found.low > 0 else None


def _mean(loss: str, rows: Sequence[ForestRow]) -> ForestRow:
    marks = grouped((mark for row in rows for mark in row.marks), lambda m: (m.style, m.label))
    values = {key: [mark.value for mark in found] for key, found in sorted(marks.items())}
    means = (Mark(*key, geometric_mean(of), min(of), max(of)) for key, of in values.items())
    return ForestRow(f"{loss} ({count(len(rows), 'case')})", tuple(means))


def _group(how: str, base: str, cells: dict[str, list[ForestRow]], baseline: Baseline) -> Group:
    plots = [
        forest_plot(
            f"speedup-{slug(how)}-{slug(loss)}", f"{loss}, {how}",
            f"Speedups over {base} of each case of {loss}.", rows, baseline,
        )
        for loss, rows in cells.items()
    ]  # fmt: skip
    number = sum(map(len, cells.values()))
    return Group(f"All {number} cases, {how}: one plot for each loss", tuple(plots))


def _figures(how: str, cells: dict[str, list[ForestRow]]) -> list[Row]:
    """Return the geometric means as a table: the full table has the ratio of each case."""
    rows = []
    for loss, found in cells.items():
        shown = [_mean(loss, found)] if len(found) > 1 else found
        rows += [
            Row(
                (how, row.label, mark.label, ratio(mark.value), interval(mark.low, mark.high)),
                mark.style,
            )
            for row in shown
            for mark in row.marks
        ]
    return rows


def _description(rows: Sequence[ForestRow]) -> str:
    return "; ".join(
        f"{row.label}: {', '.join(f'{m.label} {ratio(m.value)}' for m in row.marks)}"
        for row in rows[:20]
    )
