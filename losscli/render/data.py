"""Write records as CSV, JSON and JSON Lines, in SI units. Their fields are contracts."""

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from losscli.cases.case import Case
from losscli.compare.gate import Comparisons, record_of
from losscli.compare.history import History
from losscli.errors import printable
from losscli.profile.record import Profile
from losscli.runs.encoding import finite, json_line
from losscli.runs.measurements import Collective, Seconds, Speedup
from losscli.runs.records import BenchResult, Result, Run
from losscli.units import format_size

AnyRecord = Run | Comparisons | History | Profile
FORMULA = ("=", "+", "-", "@", "\t")
"""Beginnings of text that spreadsheets take for a formula."""


def _json_of(record: AnyRecord) -> str:
    """Write one key a line, and a list of numbers, such as the samples, on one line."""
    text = json.dumps(finite(_whole(record)), indent=2, allow_nan=False)
    if not isinstance(record, Run):
        return text
    return re.sub(r"\[\n([-+.,e0-9\s]+)\]", lambda found: f"[{' '.join(found[1].split())}]", text)


def _jsonl_of(record: AnyRecord) -> str:
    """Write a line of what all rows share, then a line a row."""
    whole = _whole(record)
    if isinstance(record, Run):
        lines = [whole, *whole.pop("results")]
    elif isinstance(record, History):
        lines = [whole, *whole.pop("rows")]
    elif isinstance(record, Comparisons):
        lines = [whole, *(row for one in whole["comparisons"] for row in one.pop("rows"))]
    else:
        lines = [whole]
    return "\n".join(map(json_line, lines))


def _csv_of(record: AnyRecord) -> str:
    """Write one row a result; all runs of a kind have the same columns."""
    if isinstance(record, Run):
        rows = [_flatten(result) for result in record.results]
        likely = [_flatten(_FULL)] if record.kind == "bench" else rows
        return as_csv(dict.fromkeys(key for row in likely for key in row), rows)
    whole = _whole(record)
    if not isinstance(record, History):
        rows = [row for one in whole.get("comparisons", ()) for row in one["rows"]]
        return as_csv(rows[0] if rows else ("run", "case"), rows)
    rows = [
        {key: value for key, value in row.items() if key not in ("points", "steps")} | point
        for row in whole["rows"]
        for point in row["points"]
    ]
    return as_csv(rows[0] if rows else ("case", "commit"), rows)


DATA: Mapping[str, Callable[[AnyRecord], str]] = {
    "csv": _csv_of,
    "json": _json_of,
    "jsonl": _jsonl_of,
}


def _whole(record: AnyRecord) -> dict[str, Any]:
    return (record_of(record) if isinstance(record, Comparisons) else record).to_json()


def _flatten(result: Result) -> dict[str, Any]:
    record = result.to_json()
    row: dict[str, Any] = record.pop("case", {})
    if isinstance(result, BenchResult):
        row.setdefault("placement", "")
        record["ranks"] = json.dumps(record.get("ranks")) if result.ranks else ""
        record["collective"] = result.collective.to_json() if result.collective else None
        for key in ("speedup", "ratios", "conditions"):
            known = {"reference": record[key].get("reference")} if key != "conditions" else {}
            record[key] = {**known, "": json_line(record[key]) if record[key] else ""}
    row |= _level("", record)
    if row.keys() >= {"shape", "target_shape", "params"}:
        row |= {key: format_size(row[key]) for key in ("shape", "target_shape")}
        row["params"] = " ".join(f"{name}={value:g}" for name, value in row["params"].items())
    if "seconds_samples" in row:
        row["seconds_samples"] = len(row["seconds_samples"])
    if interval := row.pop("seconds_interval", None):
        row["seconds_low"], row["seconds_high"] = interval
    # A result without these has one cell for all of their columns.
    absent = [key for key in ("seconds", "ratios_reference", "collective") if row.get(key) is None]
    return {key: value for key, value in row.items() if key not in absent}


_FULL = BenchResult(
    case=Case("mse", (1,), (1,), "float32", "mean", "cpu", {}, "uniform", 0),
    implementation="",
    pass_="forward",
    status="ok",
    seconds=Seconds(1.0, 1.0, 1.0, 1.0, (1.0,), (1.0, 1.0)),
    ratios={"reference": Speedup(1.0, 1.0, 1.0)},
    collective=Collective(1, 1.0),
)
"""A result with all fields, and so with the columns of every bench run."""


def _level(key: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        return {key: value}
    return {
        longer: item
        for name, below in value.items()
        for longer, item in _level(f"{key}_{name}".strip("_"), below).items()
    }


def as_csv(headers: Iterable[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Return rows as CSV, without a last newline."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(headers), lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _cell(value) for key, value in row.items()} for row in rows)
    return text.getvalue().removesuffix("\n")


def _cell(value: Any) -> Any:
    """Return a cell's value; an apostrophe keeps a spreadsheet from computing text."""
    if not isinstance(value, str):
        return value
    text = printable(value)
    if text.startswith(FORMULA):
        try:
            float(text)
        except ValueError:
            return f"'{text}"
    return text
