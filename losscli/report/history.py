"""The report of a history in every format. Pure functions, as in ``render``.

A row has a table of its commits, the oldest first, whose last column is the plot: the mark of each
commit stands where its median lies between the shortest and the longest. Of many rows one table has
the first and the last commit of each. The changes follow.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from textwrap import indent
from typing import Any

from losscli.cases.case import distinct_names
from losscli.compare.figures import FIGURES
from losscli.compare.history import MEMORY, History, Point, Series, Step
from losscli.compare.rows import label
from losscli.report.bench_table import short_pass
from losscli.report.phrases import count
from losscli.report.tables import (
    INDENT,
    MARKDOWN,
    TEXT,
    WIDTH,
    Side,
    Style,
    as_csv,
    beside_case,
    fill,
    lay_out,
    shorten,
)
from losscli.runs.encoding import finite, json_line
from losscli.runs.records import SCHEMA_VERSION
from losscli.units import format_bytes, format_seconds

FEW = 4
"""Most rows that have a table each."""
PLOT = 28
"""Characters of the plot."""
_NAMED = 10
"""Most rows that are named of a commit."""
_MORE = "that is no history; measure another with `losscli bench --save NAME`"


def render_history(found: History, format: str) -> str:
    """Return a history as ``table``, ``md``, ``csv``, ``json`` or ``jsonl``."""
    if format == "table":
        return _page(found, TEXT, WIDTH)
    if format == "md":
        return _page(found, MARKDOWN, None)
    rows = [_row(series) for series in found.series]
    header: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "kind": "history",
        "commits": list(found.commits),
        "left_out": dict(found.left_out),
    }
    if format == "json":
        return json.dumps(finite(header | {"rows": rows}), indent=2)
    if format == "jsonl":
        return "\n".join(map(json_line, [header, *rows]))
    flat = [
        {key: value for key, value in row.items() if key not in ("points", "steps")} | point
        for row in rows
        for point in row["points"]
    ]
    return as_csv(flat[0] if flat else ("case", "commit"), flat)


def _row(series: Series) -> dict[str, Any]:
    result = series.result
    return {
        "case": result.case.name,
        "pass": result.pass_,
        "mode": result.mode,
        "cache": result.cache,
        "implementation": result.implementation,
        "table": result.table,
        "points": [point.to_json() for point in series.points],
        "steps": [step.to_json() for step in series.steps],
    }


def _page(found: History, style: Style, width: int | None) -> str:
    parts: list[str] = []
    if len(found.series) > FEW:
        parts += [_summary(found.series, width, style)]
    else:
        for series in found.series:
            parts += [label(series.result), _points(series.points, style)]
    line = "\n" if style == TEXT else "\n\n"  # Markdown runs lines together
    parts += [line.join(_changes(found))]
    parts += [line.join(fill(f"left out {name}: {why}") for name, why in found.left_out.items())]
    if len(found.series) > FEW:
        parts += [f"--filter chooses rows; of up to {FEW} each commit is shown and plotted"]
    return "\n\n".join(part for part in parts if part)


def _points(points: Sequence[Point], style: Style) -> str:
    """Lay out the commits of a row and plot their medians."""
    times = [point.seconds for point in points]
    low, high = min(times), max(times)
    ends = f"{format_seconds(low, 3)} to {format_seconds(high, 3)}"
    rows = [
        [
            point.commit,
            point.created[:16].replace("T", " "),
            str(point.runs),
            format_seconds(point.seconds),
            "-" if point.peak_extra_bytes is None else format_bytes(point.peak_extra_bytes),
            "." * round((PLOT - 1) * (point.seconds - low) / (high - low or 1)) + "*",
        ]
        for point in points
    ]
    sides: list[Side] = ["left", "left", "right", "right", "right", "left"]
    return lay_out(["commit", "created", "runs", "median", "extra", ends], rows, style, sides)


def _summary(series: Sequence[Series], width: int | None, style: Style) -> str:
    """Lay out the first and the last commit of each row."""
    names = distinct_names(each.result.case for each in series)
    groups: dict[str, list[list[str]]] = {}
    for each in series:
        first, last, result = each.points[0], each.points[-1], each.result
        cells = [short_pass(result), shorten(result.implementation)]
        cells += [str(sum(point.runs for point in each.points))]
        cells += [format_seconds(point.seconds) for point in (first, last)]
        cells += [f"{last.seconds / first.seconds:.3f}", str(len(each.steps))]
        name = names[result.case]
        groups.setdefault(f"{name} ({result.table})" if result.table else name, []).append(cells)
    headers = ["pass", "impl", "runs", "first", "last", "last/first", "changes"]
    return lay_out(*beside_case(headers, groups, width), style)


def _changes(found: History) -> list[str]:
    """Return the commits with a change, each before the rows that changed there."""
    commits = count(len(found.commits), "commit")
    if len(found.commits) < 2:
        return [f"only {commits} with a run: {_MORE}"]
    steps = [(step, series) for series in found.series for step in series.steps]
    lines = []
    for commit in found.commits:
        there = [(step, series) for step, series in steps if step.commit == commit]
        if there:
            rows = count(len(there), "change")
            lines.append(f"{rows} since {commit}, after {there[0][0].previous}:")
            told = [f"{_change(step)}: {label(series.result)}" for step, series in there]
            lines += [indent(fill(line, WIDTH - len(INDENT)), INDENT) for line in told[:_NAMED]]
            lines += [f"{INDENT}and {len(told) - _NAMED} more"] * (len(told) > _NAMED)
    nothing = f"no change that noise does not explain in {count(len(found.series), 'row')}"
    return lines or [f"{nothing} over {commits}"]


def _change(step: Step) -> str:
    if step.figure == MEMORY:
        text = FIGURES[MEMORY].text
        what = "MORE MEMORY" if step.after > step.before else "less memory"
        return f"{what}, {text(step.before)}, then {text(step.after)}"
    what = "SLOWER" if step.after > step.before else "faster"
    ratio = f"{step.after / step.before:.3f} ({step.low:.3f}-{step.high:.3f})"
    return f"{what} {ratio}, {format_seconds(step.before)}, then {format_seconds(step.after)}"
