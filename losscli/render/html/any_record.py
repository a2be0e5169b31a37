"""Read any record that a report shows: a run, verdicts, or a comparison."""

import re
from pathlib import Path
from typing import cast, get_args

import msgspec
from msgspec.structs import replace

from losscli.compare.gate import ComparedRow, ComparisonRecord
from losscli.errors import UsageError
from losscli.judge.verdict import Verdict
from losscli.report.verdict_writer import Verdicts
from losscli.runs.encoding import UNREADABLE, RecordError, read_json
from losscli.runs.grouping import grouped
from losscli.runs.reading import damaged, data_of, run_of
from losscli.runs.records import Kind, Run

_KIND = re.compile(rb'"kind"\s*:\s*"([a-z-]+)"')
_VERDICT = re.compile(rb'\A\s*\{\s*"id"\s*:')
"""The beginning of a verdict's line, which has no header."""


Reported = Run | Verdicts | ComparisonRecord


def read_record(path: Path) -> Reported:
    """Return a file's record of any kind; UsageError if losscli did not write it."""
    data = data_of(path)
    kind = _kind_of(path, data)
    if kind in get_args(Kind):
        return run_of(path, data, cast(Kind, kind))
    try:
        if kind == "compare":
            return _comparison(data)
        return read_json(Verdicts, data) if kind == "judge" else _verdicts(data)
    except RecordError as error:
        raise UsageError(f"{path}: the record is not valid: {error}.") from None
    except UNREADABLE as error:
        raise damaged(path, error) from None


def _kind_of(path: Path, data: bytes) -> str:
    found = _KIND.search(data, 0, 2**16)
    kind = found[1].decode() if found else "verdicts" if _VERDICT.match(data) else ""
    if kind not in (*get_args(Kind), "judge", "compare", "verdicts"):
        given = f"holds a record of '{kind}'" if kind else "is not a record of losscli"
        named = "a run of bench, verify or self-test, verdicts of judge, or a comparison"
        raise UsageError(f"'{path}' {given}. Name {named}, in JSON or JSONL.")
    return kind


def _verdicts(data: bytes) -> Verdicts:
    """Read a verdict a line, without an incomplete last line."""
    *lines, last = data.rstrip().split(b"\n")
    found = [read_json(Verdict, line) for line in lines if line.strip()]
    try:
        found.append(read_json(Verdict, last))
    except UNREADABLE:
        if not found:
            raise
    return Verdicts(verdicts=tuple(found))


def _comparison(data: bytes) -> ComparisonRecord:
    """Read a comparison in JSON, or in JSONL: the record without rows, then a row a line."""
    first, _, rest = data.partition(b"\n")
    try:
        msgspec.json.decode(first)
    except msgspec.DecodeError:
        return read_json(ComparisonRecord, data)
    record = read_json(ComparisonRecord, first)
    rows = [read_json(ComparedRow, line) for line in rest.split(b"\n") if line.strip()]
    by_run = grouped(rows, lambda row: row.run)
    runs = (replace(o, rows=(*o.rows, *by_run.get(o.run, ()))) for o in record.comparisons)
    return replace(record, comparisons=tuple(runs))
