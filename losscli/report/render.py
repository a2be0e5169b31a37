"""Renders a run in any format. Pure functions: no clock, no device, no file."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Collection
from typing import Any

from losscli.axes import WARM
from losscli.cases import Case
from losscli.report import bench_table, peers, selftest_table, timer_test_table, verify_table
from losscli.report.tables import MARKDOWN, TEXT, WIDTH, Style, fill, lay_out, left_out
from losscli.runs.encoding import finite, json_line
from losscli.runs.records import (
    SKIPPED,
    BenchResult,
    Kind,
    Result,
    Run,
    Seconds,
    Speedup,
    TimerTestResult,
)
from losscli.units import format_size

_TABLES: dict[Kind, Any] = {
    "bench": bench_table,
    "verify": verify_table,
    "self-test": selftest_table,
    "timer-test": timer_test_table,
}
"""The module that lays out a run, by its kind."""


def render(run: Run, format: str, width: int = WIDTH) -> str:
    """Return a run as ``table``, ``md``, ``csv``, ``json`` or ``jsonl``, without a last newline.

    ``width`` is that of a table; a narrower one has fewer columns.
    """
    return _page(run, TEXT, width) if format == "table" else _FORMATS[format](run)


def conclusion(run: Run) -> str:
    """Return the conclusion of a run without tables: failures, skipped rows, the summary."""
    return "\n".join([*_notes(run), *_comparison(run), *_summary(run)])


def _markdown(run: Run) -> str:
    return _page(run, MARKDOWN, None)


def _page(run: Run, style: Style, width: int | None) -> str:
    """Lay out a report: the machine, the tables, the notes, the summary line."""
    parts = [_caption(run)]
    shown: list[str] = []
    for title, headers, rows in _tables(run, width):
        parts += [title and (title if style == TEXT else f"### {title}")]
        parts += [lay_out(headers, rows, style)]
        shown += headers
    parts += [_dropped(run, shown, width), _legend(run, shown, width)]
    # Markdown runs lines together that no empty line parts.
    line = "\n" if style == TEXT else "\n\n"
    noted = [note for note in _notes(run) if note or style == TEXT]
    if width is not None and width < WIDTH:
        noted = [fill(" ".join(note.split()), width) for note in noted]
    parts += [line.join(noted), line.join(_comparison(run)), line.join(_summary(run))]
    return "\n\n".join(part for part in parts if part)


def _dropped(run: Run, shown: Collection[str], width: int | None) -> str:
    """Return the columns that the terminal is too narrow for."""
    if width is None or width >= WIDTH:
        return ""
    all_headers = [header for _, headers, _ in _tables(run, WIDTH) for header in headers]
    return left_out([header for header in all_headers if header not in shown], width)


def _legend(run: Run, shown: Collection[str], width: int | None) -> str:
    """Return what the tables mean, where their module says so."""
    legend = getattr(_TABLES[run.kind], "legend", None)
    if not shown or legend is None:
        return ""
    text: str = legend(run, shown)
    return text if width is None else fill(text, width)


def _tables(run: Run, width: int | None) -> list[tuple[str, list[str], list[list[str]]]]:
    """Return the title, headers and rows of each table."""
    laid_out: list[tuple[str, list[str], list[list[str]]]]
    laid_out = _TABLES[run.kind].tables(run, width)
    return laid_out


def _notes(run: Run) -> list[str]:
    lines: list[str] = _TABLES[run.kind].notes(run)
    return [*lines, *(fill(str(exclusion)) for exclusion in run.excluded)]


def _comparison(run: Run) -> list[str]:
    return peers.lines(run) if run.kind == "bench" else []


def _summary(run: Run) -> list[str]:
    text: str = _TABLES[run.kind].summary(run)
    return text.splitlines()


def _caption(run: Run) -> str:
    """Return the machine, and the dtype, reduction and warm cache that all cases share."""
    facts = run.environment
    threads = f"{facts.get('threads')} threads" if facts.get("device") == "cpu" else ""
    machine = [facts.get("gpu") or facts.get("cpu"), threads, f"torch {facts.get('torch')}"]
    cases = [result.case for result in run.results if not isinstance(result, TimerTestResult)]
    shared = [{getattr(case, axis) for case in cases} for axis in ("dtype", "reduction")]
    ran = [r for r in run.results if isinstance(r, BenchResult) and r.status != SKIPPED]
    warm = "warm cache" if {r.cache for r in ran} == {WARM} else ""
    words = [*machine, *(values.pop() for values in shared if len(values) == 1), warm]
    return ", ".join(word for word in words if word)


def _csv(run: Run) -> str:
    """Write one row per result, in SI units; the samples are only counted, JSON has them.

    The columns are the same in every run of a kind. Facts that differ from result to result (ratios
    to other implementations, conditions) are JSON in a cell; the ratio to the reference has its own
    columns.
    """
    rows = [_flatten(result) for result in run.results]
    likely = [_flatten(_FULL)] if run.kind == "bench" else rows
    fields = dict.fromkeys(key for row in likely for key in row)
    text = io.StringIO()
    writer = csv.DictWriter(text, fields, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().removesuffix("\n")


def _flatten(result: Result) -> dict[str, Any]:
    """Return a result without levels: ``seconds_median``, ``speedup_reference`` and so on."""
    record = result.to_json()
    row: dict[str, Any] = record.pop("case", {})
    if isinstance(result, BenchResult):
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
    for empty in ("seconds", "ratios_reference"):  # a result without has one cell for all columns
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
    "md": _markdown,
    "csv": _csv,
    "json": _json,
    "jsonl": _jsonl,
}
