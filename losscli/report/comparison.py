"""The report of a comparison in every format. Pure functions, as in ``render``.

A row is an implementation and pass of a case, in one mode and with one state of the caches, which
stand beside the pass if they are not the default. ``base`` and ``new`` are the medians,
``new/base`` is their ratio: above 1 the new run is slower. ``interval`` is the confidence interval
of the ratio. The verdict is ``slower`` or ``faster`` if the interval excludes 1, ``same`` if it
stays within the threshold, otherwise ``unclear``.
"""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial

from losscli.cases.case import distinct_names
from losscli.compare.change import CONFIDENCE
from losscli.compare.comparison import Comparison, Mean
from losscli.compare.figures import FIGURES
from losscli.compare.gate import Comparisons
from losscli.compare.record import record_of
from losscli.compare.rows import label, mode_and_cache
from losscli.report.bench_table import SHORT_PASSES
from losscli.report.phrases import count
from losscli.report.render import caption
from losscli.report.tables import (
    MARKDOWN,
    TEXT,
    WIDTH,
    Style,
    as_csv,
    beside_case,
    lay_out,
    left_out,
    shorten,
)
from losscli.runs.encoding import finite, json_line
from losscli.runs.judgements import SLOWER
from losscli.runs.records import FAILED, SKIPPED, BenchResult, Run
from losscli.units import format_seconds

LEAST_IMPORTANT = ("base", "new", "interval")
"""Columns that a narrow terminal goes without, the first one first."""
_LEGEND = (
    "new/base: the new time over that of the baseline, above 1 the new run is slower; interval: "
    "holds the next ratio too; same: within the threshold; unclear: too few or too scattered "
    "samples to decide"
)
_NAMED = 10
"""Most rows of only one run that a table names."""


def render_comparison(compared: Comparisons, format: str, width: int = WIDTH) -> str:
    """Return a comparison as ``table``, ``md``, ``csv``, ``json`` or ``jsonl``.

    ``width`` is that of a table; a narrower one has fewer columns.
    """
    if format == "table":
        return _page(compared, TEXT, width)
    if format == "md":
        return _page(compared, MARKDOWN, None)
    record = record_of(compared)
    if format == "json":
        return json.dumps(finite(record.to_json()), indent=2)
    rows = [row.to_json() for one in record.comparisons for row in one.rows]
    if format == "csv":
        return as_csv(rows[0] if rows else ("run", "case"), rows)
    header = record.to_json()
    for one in header["comparisons"]:
        del one["rows"]
    return "\n".join(map(json_line, [header, *rows]))


def conclusion(compared: Comparisons) -> str:
    """Return the conclusion of a comparison: a line for each run, and each slower row."""
    return "\n".join(_conclusion(compared))


def _page(compared: Comparisons, style: Style, width: int | None) -> str:
    joined = partial(_joined, width)
    runs = {f"base: {compared.baseline}": compared.before}
    runs |= {f"new: {name}": one.after for name, one in compared.comparisons.items()}
    parts = [joined(_caption(title, run) for title, run in runs.items())]
    for name, comparison in compared.comparisons.items():
        if len(compared.comparisons) > 1:
            parts += [name if style == TEXT else f"### {name}"]
        headers, rows = _rows(comparison, width)
        unlike = (
            f"{'NOT COMPARABLE' if each.decisive else 'note'}: different {each}"
            for each in comparison.differences
        )
        dropped = [header for header in LEAST_IMPORTANT if headers and header not in headers]
        parts += [joined(unlike), lay_out(headers, rows, style)]
        parts += [_means(comparison, style), joined(_memory(comparison))]
        parts += [joined(_missing(compared.baseline, name, comparison))]
        parts += [joined([left_out(dropped, width)] if dropped and width else [])]
        parts += [joined([_LEGEND]), joined(_noise(comparison))]
    parts += [joined(_conclusion(compared))]
    return "\n\n".join(part for part in parts if part)


def _joined(width: int | None, lines: Iterable[str]) -> str:
    """Join lines, which Markdown runs together unless an empty one parts them."""
    if width is None:
        return "\n\n".join(lines)
    return "\n".join(textwrap.fill(line, width, subsequent_indent="      ") for line in lines)


def _caption(title: str, run: Run) -> str:
    commit = run.environment.get("commit")
    return ", ".join(caption(run.environment, title, run.created, commit and f"commit {commit}"))


def _rows(comparison: Comparison, width: int | None) -> tuple[list[str], list[list[str]]]:
    headers = ["pass", "impl", "base", "new", "new/base", "interval", "verdict"]
    groups: dict[str, list[list[str]]] = {}
    names = distinct_names(row.after.case for row in comparison.rows)
    for row in comparison.rows:
        result = row.after
        cells = [
            _pass(result),
            shorten(result.implementation),
            _seconds(row.before),
            _seconds(result),
            f"{row.ratio.value:.3f}",
            f"{row.ratio.low:.3f}-{row.ratio.high:.3f}",
            row.verdict.upper() if row.verdict == SLOWER else row.verdict,
        ]
        name = names[result.case]
        title = f"{name} ({result.table})" if result.table else name
        groups.setdefault(title, []).append(cells)
    return beside_case(headers, groups, width, LEAST_IMPORTANT)


def _pass(timed: BenchResult | Mean) -> str:
    """Return ``fwd``, or ``fwd host warm`` where mode and cache are not the usual."""
    return " ".join([SHORT_PASSES[timed.pass_], *mode_and_cache(timed.mode, timed.cache)])


def _seconds(result: BenchResult) -> str:
    return format_seconds(result.seconds.median) if result.seconds else ""


def _means(comparison: Comparison, style: Style) -> str:
    headers = ["loss", "pass", "impl", "cases", "geometric mean of new/base"]
    rows = [
        [each.loss, _pass(each), each.implementation, str(each.rows), f"{each.ratio:.3f}"]
        for each in comparison.means()
    ]
    return lay_out(headers, rows, style)


def _memory(comparison: Comparison) -> list[str]:
    """Return the rows that take more or less memory than before, which has no noise."""
    text = FIGURES["memory"].text
    rows = [
        f"{row.name}: {text(before)}, then {text(after)}"
        for row, before, after in comparison.both("memory")
        if before != after
    ]
    return [f"other memory: {count(len(rows), 'row')}", *_named(rows)] if rows else []


def _missing(baseline: str, name: str, comparison: Comparison) -> list[str]:
    lines = []
    for where, found in ((baseline, comparison.only_before), (name, comparison.only_after)):
        if found:
            lines.append(f"timed only in {where}: {count(len(found), 'row')}")
            lines += _named(
                [
                    label(each.result) + (f" (in the other run {each.why})" if each.why else "")
                    for each in found
                ]
            )
    return lines


def _named(rows: Sequence[str]) -> list[str]:
    """Return a line for each of the first rows, and how many there are more."""
    more = [f"and {len(rows) - _NAMED} more"] if len(rows) > _NAMED else []
    return [f"    {row}" for row in (*rows[:_NAMED], *more)]


def _noise(comparison: Comparison) -> list[str]:
    """Return the noise behind the intervals, for each mode and cache if there are several."""
    lines = []
    for noise in comparison.noises:
        known = f"measured on {noise.controls} rows of PyTorch's own implementations"
        if noise.why:
            known = f"assumed, {noise.why}"
        if noise.from_processes:
            known = "measured by the spread between the processes of each run"
        where = f" ({noise.mode}, {noise.cache})" if len(comparison.noises) > 1 else ""
        line = f"noise from run to run{where}: {100 * noise.value:.1f} %, {known}"
        if noise.controls:
            off = f"{100 * noise.off:.1f} % in the median, {100 * noise.most_off:.1f} % at most"
            line += f"; the ratios of these controls are off by {off}"
        lines.append(line)
    return [*lines, f"all intervals hold together with {100 * CONFIDENCE:g} % confidence"]


def _conclusion(compared: Comparisons) -> list[str]:
    lines = []
    for name, comparison in compared.comparisons.items():
        verdicts = Counter(row.verdict for row in comparison.rows)
        counts = sorted(f"{number} {verdict}" for verdict, number in verdicts.items())
        words = ", ".join([count(len(comparison.rows), "row"), *counts])
        lines.append(f"{name} against {compared.baseline}: {words}")
        lines += _lost(compared.baseline, name, comparison)
    if compared.threshold is not None:
        lines += _undecided(compared, compared.threshold)
        found = compared.regressions()
        what = f"slower by more than {100 * compared.threshold:g} % and beyond the measured noise"
        none = "no other row" if compared.disturbed() else "no row"
        lines.append(f"{count(len(found), 'row') if found else none} {what}")
        several = len(compared.comparisons) > 1
        lines += [
            f"    {f'{name}: ' if several else ''}{row.name}: {row.ratio.value:.3f} "
            f"({_seconds(row.before)}, then {_seconds(row.after)})"
            for name, row in found
        ]
    return [*_again(compared), *lines, *_grown(compared), *_not_looked(compared)]


def _again(compared: Comparisons) -> list[str]:
    """Return the rows that neither pass nor fail, because other programs disturbed them."""
    found = compared.disturbed()
    if not found:
        return []
    were = "was" if len(found) == 1 else "were"
    what = f"{count(len(found), 'row')} {were} timed while other programs used the machine"
    return [f"AGAIN: {what}: measure again", *_named([row.name for _, row in found])]


def _grown(compared: Comparisons) -> list[str]:
    """Return for each other figure with a limit the rows in which it has grown beyond that."""
    lines, several = [], len(compared.comparisons) > 1
    for figure, limit in compared.fail_on.limits.items():
        text, allowed = FIGURES[figure].text, FIGURES[figure].allowed(limit)
        found = [(name, each) for name, each in compared.grown() if each.figure == figure]
        rows = count(len(found), "row") if found else "no row"
        lines.append(f"{rows} with more {figure} than before, by more than {allowed}")
        lines += [
            f"    {f'{name}: ' if several else ''}{each.row.name}: {text(each.before)}, then "
            f"{text(each.after)}"
            for name, each in found
        ]
    return lines


def _not_looked(compared: Comparisons) -> list[str]:
    """Return the rows that fail the comparison because they are missing or undecided."""
    lines = []
    if cut := compared.cut_off():
        lines.append(f"FAILED: the last line of {', '.join(cut)} is cut off; results are missing")
    missing, undecided = compared.missing(), compared.undecided()
    if missing:
        rows = _counted(missing, [each.result.implementation for _, each in missing], "missing")
        lines.append(f"FAILED: {rows}; --no-fail-on-missing accepts that")
        lines += _named([label(each.result) for _, each in missing])
    if undecided:
        rows = _counted(undecided, [row.after.implementation for _, row in undecided], "undecided")
        lines.append(f"FAILED: {rows}; --no-fail-on-undecided accepts that")
    elif blind := compared.blind():
        rows = f"no row of {', '.join(blind)} could be judged"
        lines.append(f"FAILED: {rows}; --no-fail-on-undecided accepts that")
    for name, figure, lost in compared.unmeasured():
        what = f"no row of {name} and {compared.baseline} has {figure}"
        if lost:
            names = ", ".join(dict.fromkeys(row.after.implementation for row in lost))
            what = f"{count(len(lost), 'row')} of {names} lost its {figure}"
        lines.append(f"FAILED: {what}; --no-fail-on-undecided accepts that")
    return lines


def _counted(found: Sequence[object], implementations: Iterable[str], state: str) -> str:
    """Return ``3 rows of custom, reference are missing``."""
    names = ", ".join(dict.fromkeys(implementations))
    return f"{count(len(found), 'row')} of {names} {'is' if len(found) == 1 else 'are'} {state}"


def _lost(baseline: str, name: str, comparison: Comparison) -> list[str]:
    """Return how many rows of the baseline were not timed again, and the failed ones by name."""
    if not comparison.only_before:
        return []
    missing = comparison.only_before
    statuses = Counter(each.status or "absent" for each in missing)
    counts = ((statuses[status], status) for status in (FAILED, SKIPPED, "absent"))
    why = ", ".join(f"{number} {status}" for number, status in counts if number)
    were = "was" if len(missing) == 1 else "were"
    line = f"{count(len(missing), 'row')} of {baseline} {were} not timed in {name} ({why})"
    failed = (f"    FAILED {label(each.result)}: {each.reason}" for each in comparison.broken)
    return [line, *failed]


def _undecided(compared: Comparisons, threshold: float) -> list[str]:
    """Return the number of rows in which noise can hide a slowdown."""
    lines = []
    for name, comparison in compared.comparisons.items():
        if undecided := comparison.undecided(threshold):
            own = len(comparison.rows) - comparison.controls
            where = f" of {name}" if len(compared.comparisons) > 1 else ""
            are = "is" if len(undecided) == 1 else "are"
            noisy = f"{len(undecided)} of {count(own, 'row')}{where} {are} too noisy"
            lines.append(f"{noisy} to detect a change of {100 * threshold:g} %")
    return lines
