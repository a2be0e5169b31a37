"""Renders a run in any format. Pure functions: no clock, no device, no file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from losscli.cases.axes import WARM
from losscli.cases.case import Case
from losscli.report import bench_notes, bench_table, self_tests, verify_table
from losscli.report.phrases import count
from losscli.report.tables import (
    MARKDOWN,
    TEXT,
    WIDTH,
    Style,
    Tables,
    as_csv,
    fill,
    lay_out,
    left_out,
)
from losscli.runs.encoding import finite, json_line
from losscli.runs.records import (
    SKIPPED,
    BenchResult,
    Collective,
    Kind,
    Result,
    Run,
    Seconds,
    Speedup,
    TimerTestResult,
)
from losscli.units import format_size


@dataclass(frozen=True)
class Layout:
    """How runs of a kind are laid out.

    As tables within a width, which may be any; the lines below the tables; the last lines, which a
    person can quote; what the columns with these headers mean; and what the run comes to where
    losscli's own kernel has peers.
    """

    tables: Callable[[Run, int | None], Tables]
    notes: Callable[[Run], list[str]]
    summary: Callable[[Run], str]
    legend: Callable[[Run, Collection[str]], str] = lambda run, headers: ""
    comparison: Callable[[Run], list[str]] = lambda run: []


LAYOUTS: dict[Kind, Layout] = {
    "bench": Layout(
        bench_table.tables,
        bench_notes.notes,
        bench_table.summary,
        bench_table.legend,
        bench_notes.slower_cells,
    ),
    "verify": Layout(
        verify_table.tables, verify_table.notes, verify_table.summary, verify_table.legend
    ),
    "self-test": Layout(
        self_tests.tables_of_checks, self_tests.notes_on_checks, self_tests.summary_of_checks
    ),
    "timer-test": Layout(
        self_tests.tables_of_timer, self_tests.notes_on_timer, self_tests.summary_of_timer
    ),
}


def render(run: Run, format: str, width: int = WIDTH, columns: Sequence[str] = ()) -> str:
    """Return a run as ``table``, ``md``, ``csv``, ``json`` or ``jsonl``, without a last newline.

    ``width`` is that of a table; a narrower one has fewer columns. ``columns`` names those of the
    tables of a bench, in ``table`` and ``md``; without them they are the usual ones.
    """
    if format in ("table", "md"):
        style = TEXT if format == "table" else MARKDOWN
        return _page(run, style, width if style == TEXT else None, columns)
    return _FORMATS[format](run)


def conclusion(run: Run) -> str:
    """Return the conclusion of a run without tables: failures, skipped rows, the summary."""
    layout = LAYOUTS[run.kind]
    return "\n".join([*_notes(run), *layout.comparison(run), *layout.summary(run).splitlines()])


def _page(run: Run, style: Style, width: int | None, columns: Sequence[str]) -> str:
    """Lay out a report: the machine, the tables, the notes, the summary line."""
    layout = LAYOUTS[run.kind]
    if columns and run.kind == "bench":
        layout = replace(layout, tables=partial(bench_table.tables, chosen=columns))
    parts = [_caption(run)]
    shown: list[str] = []
    for title, headers, rows in layout.tables(run, width):
        parts += [title and (title if style == TEXT else f"### {title}")]
        parts += [lay_out(headers, rows, style)]
        shown += headers
    legend = layout.legend(run, shown) if shown else ""
    dropped = "" if columns else _dropped(run, shown, width)
    parts += [dropped, legend if width is None else fill(legend, width)]
    # Markdown runs lines together that no empty line parts.
    line = "\n" if style == TEXT else "\n\n"
    notes = [note for note in _notes(run) if note or style == TEXT]
    if width is not None and width < WIDTH:
        notes = [fill(" ".join(note.split()), width) for note in notes]
    below = (notes, layout.comparison(run), layout.summary(run).splitlines())
    return "\n\n".join(part for part in (*parts, *map(line.join, below)) if part)


def _dropped(run: Run, shown: Collection[str], width: int | None) -> str:
    """Return the columns that the terminal is too narrow for."""
    if width is None or width >= WIDTH:
        return ""
    wide = LAYOUTS[run.kind].tables(run, WIDTH)
    all_headers = [header for _, headers, _ in wide for header in headers]
    return left_out([header for header in all_headers if header not in shown], width)


def _notes(run: Run) -> list[str]:
    return [*LAYOUTS[run.kind].notes(run), *(fill(str(each)) for each in run.excluded)]


def caption(environment: Mapping[str, Any], *before: object) -> list[str]:
    """Return the words before, if they say anything, then the machine, its threads and torch."""
    on_cpu = environment.get("device") == "cpu"
    words = [
        *before,
        environment.get("gpu") or environment.get("cpu"),
        f"{environment.get('threads')} threads" if on_cpu else "",
        count(len(environment["ranks"]), "rank") if environment.get("ranks") else "",
        f"torch {environment.get('torch')}",
    ]
    return [str(word) for word in words if word]


def _caption(run: Run) -> str:
    """Return the machine, and the dtype, reduction and warm cache that all cases share."""
    cases = [result.case for result in run.results if not isinstance(result, TimerTestResult)]
    shared = [{getattr(case, axis) for case in cases} for axis in ("dtype", "reduction")]
    caches = {result.cache for result in run.of(BenchResult) if result.status != SKIPPED}
    words = [*caption(run.environment), *(each.pop() for each in shared if len(each) == 1)]
    return ", ".join([*words, *["warm cache"] * (caches == {WARM})])


def _csv(run: Run) -> str:
    """Write one row per result, in SI units; the samples are only counted, JSON has them.

    The columns are the same in every run of a kind. Facts that differ from result to result (ratios
    to other implementations, conditions) are JSON in a cell; the ratio to the reference has its own
    columns.
    """
    rows = [_flatten(result) for result in run.results]
    likely = [_flatten(_FULL)] if run.kind == "bench" else rows
    return as_csv(dict.fromkeys(key for row in likely for key in row), rows)


def _flatten(result: Result) -> dict[str, Any]:
    """Return a result without levels: ``seconds_median``, ``speedup_reference`` and so on."""
    record = result.to_json()
    row: dict[str, Any] = record.pop("case", {})
    if isinstance(result, BenchResult):
        row.setdefault("placement", "")
        record["ranks"] = json.dumps(record.get("ranks")) if result.ranks else ""
        record["collective"] = result.collective.to_json() if result.collective else None
        for key in ("speedup", "ratios", "conditions"):
            known = {"reference": record[key].get("reference")} if key != "conditions" else {}
            record[key] = {**known, "": json_line(record[key]) if record[key] else ""}
    for key, value in record.items():
        row |= _level(key, value)
    if row.keys() >= {"shape", "target_shape", "params"}:
        row |= {key: format_size(row[key]) for key in ("shape", "target_shape")}
        row["params"] = " ".join(f"{name}={value:g}" for name, value in row["params"].items())
    if "seconds_samples" in row:
        row["seconds_samples"] = len(row["seconds_samples"])
    if interval := row.pop("seconds_interval", None):
        row["seconds_low"], row["seconds_high"] = interval
    for empty in (
        "seconds",
        "ratios_reference",
        "collective",
    ):  # a result without has one cell for all columns
        if empty in row and row[empty] is None:
            del row[empty]
    return row


_FULL = BenchResult(
    case=Case("mse", (1,), (1,), "float32", "mean", "cpu", {}, "uniform", 0),
    implementation="",
    pass_="forward",
    status="ok",
    seconds=Seconds(1.0, 1.0, 1.0, 1.0, (1.0,), (1.0, 1.0)),
    ratios={"reference": Speedup(1.0, 1.0, 1.0)},
    collective=Collective(1, 1.0),
)
"""A result with all fields: its columns are those of every bench run."""


def _level(key: str, value: Any) -> dict[str, Any]:
    """Return a value under its key, or a mapping's values under longer keys."""
    if not isinstance(value, dict):
        return {key: value}
    return {
        longer: item
        for name, below in value.items()
        for longer, item in _level(f"{key}_{name}".rstrip("_"), below).items()
    }


def _json(run: Run) -> str:
    """Write one key per line, and a list of numbers, such as the samples, on one line."""
    text = json.dumps(finite(run.to_json()), indent=2, allow_nan=False)
    return re.sub(r"\[\n([-+.,e0-9\s]+)\]", lambda found: f"[{' '.join(found[1].split())}]", text)


def _jsonl(run: Run) -> str:
    records = [run.header.to_json(), *(result.to_json() for result in run.results)]
    return "\n".join(json_line(record) for record in records)


_FORMATS: dict[str, Callable[[Run], str]] = {
    "csv": _csv,
    "json": _json,
    "jsonl": _jsonl,
}
