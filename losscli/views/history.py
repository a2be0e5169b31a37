"""The report of `losscli history`: the commits with a change, then few rows, or all in short."""

from collections.abc import Sequence

from losscli.cases.case import distinct_names
from losscli.compare.history import History, MeasuredCommit, MetricChange, RowHistory
from losscli.compare.metrics import MEMORY, METRICS
from losscli.compare.row_keys import in_table, label
from losscli.units import format_bytes, format_seconds
from losscli.views.document import Document, Notes, Part, Table, case_table
from losscli.views.phrases import count, listed, short_pass, shorten

FEW = 4
"""Most rows that have a table each."""


def view(found: History) -> Document:
    """Return the report of a history."""
    left_out = Notes([f"left out {name}: {why}" for name, why in found.left_out.items()])
    if len(found.series) <= FEW:
        shown = (Part(label(each.result), (_points(each.points),)) for each in found.series)
        return Notes(_changes(found)), *shown, left_out
    hint = f"--filter chooses rows; up to {FEW} are shown and plotted commit by commit"
    return Notes(_changes(found)), _summary(found.series), left_out, Notes([hint])


def _points(points: Sequence[MeasuredCommit]) -> Table:
    times = [point.seconds for point in points]
    low, high = min(times), max(times)
    ends = f"{format_seconds(low, 3)} to {format_seconds(high, 3)}"
    rows = []
    for point in points:
        cells = [point.commit, point.created[:16].replace("T", " "), str(point.runs)]
        memory = "-" if point.peak_extra_bytes is None else format_bytes(point.peak_extra_bytes)
        place = round(27 * (point.seconds - low) / (high - low or 1))
        rows.append([*cells, format_seconds(point.seconds), memory, "." * place + "*"])
    headers = ["commit", "created", "runs", "median", "temp mem", ends]
    return Table(headers, rows, align=["left", "left", "right", "right", "right", "left"])


def _summary(series: Sequence[RowHistory]) -> Table:
    names = distinct_names(each.result.case for each in series)
    rows = []
    for each in series:
        first, last, result = each.points[0].seconds, each.points[-1].seconds, each.result
        cells = [in_table(names[result.case], result.table)]
        cells += [short_pass(result.pass_, result.mode), shorten(result.implementation)]
        cells += [str(sum(point.runs for point in each.points)), format_seconds(first)]
        cells += [format_seconds(last), f"{last / first:.3f}", str(len(each.steps))]
        rows.append(cells)
    return case_table(["pass", "impl", "runs", "first", "last", "last/first", "changes"], rows)


def _changes(found: History) -> list[str]:
    commits = count(len(found.commits), "commit")
    if len(found.commits) < 2:
        more = "a history needs two; measure another with `losscli bench --save NAME`"
        return [f"only {commits} with a run: {more}"]
    steps = [(step, series) for series in found.series for step in series.steps]
    lines = []
    for commit in found.commits:
        if there := [(step, series) for step, series in steps if step.commit == commit]:
            title = f"{count(len(there), 'change')} since {commit}, after {there[0][0].previous}:"
            rows = [f"{_change(step)}: {label(series.result)}" for step, series in there]
            lines += listed(title, rows)
    nothing = f"no change beyond noise in {count(len(found.series), 'row')}"
    return lines or [f"{nothing} over {commits}"]


def _change(step: MetricChange) -> str:
    if step.metric == MEMORY:
        text = METRICS[MEMORY].text
        what = "MORE MEMORY" if step.after > step.before else "less memory"
        return f"{what}, {text(step.before)}, then {text(step.after)}"
    what = "SLOWER" if step.after > step.before else "faster"
    ratio = f"{step.after / step.before:.3f} ({step.low:.3f}-{step.high:.3f})"
    return f"{what} {ratio}, {format_seconds(step.before)}, then {format_seconds(step.after)}"
