"""Reads any record that a report is made of: a run, verdicts of a judge, or a comparison."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import cast, get_args

import msgspec
from msgspec.structs import replace

from losscli.compare.record import ComparedRow, ComparisonRecord
from losscli.errors import UsageError
from losscli.files.reading import RECORD_BYTES, read_bytes
from losscli.judge.verdict import Verdict
from losscli.report.verdict_writer import Verdicts
from losscli.runs.encoding import UNREADABLE, RecordError, read_object
from losscli.runs.grouping import grouped
from losscli.runs.reading import read_run
from losscli.runs.records import BenchResult, Kind, Run

_HEAD = 64 * 2**10
_MOST = 1e30
"""A figure above any ratio of times."""
_KIND = re.compile(rb'"kind"\s*:\s*"([a-z-]+)"')
_VERDICT = re.compile(rb'\A\s*\{\s*"id"\s*:')
"""How a line of verdicts begins, which have no header."""
_NAMED = "a run of bench, verify or self-test, verdicts of judge, or a comparison"


AnyRecord = Run | Verdicts | ComparisonRecord


def read_record(path: Path) -> AnyRecord:
    """Return what a file holds, whatever its kind; UsageError if losscli did not write it."""
    kind = _kind_of(path)
    try:
        if kind in get_args(Kind):
            return _plausible_run(read_run(path, cast(Kind, kind)))
        data = read_bytes(path, RECORD_BYTES)
        if kind == "compare":
            return _plausible_comparison(_comparison(data))
        lines = kind != "judge"
        return _plausible(_verdicts(data) if lines else read_object(Verdicts, data))
    except RecordError as error:
        raise UsageError(f"{path}: the record is not valid: {error}.") from None
    except UNREADABLE as error:
        raise UsageError(f"{path} is cut off or damaged: {error}.") from None
    except OSError as error:
        raise UsageError(f"cannot read '{path}': {error.strerror}.") from None


def _kind_of(path: Path) -> str:
    """Return the kind that a file says it is of; ``verdicts`` where it has a verdict a line."""
    try:
        if path.is_dir():
            raise UsageError(f"'{path}' is a directory. Name {_NAMED}.")
        if not path.is_file():
            raise UsageError(f"'{path}' is no regular file. Save it as a file, and name that.")
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError as error:
        raise UsageError(f"cannot read '{path}': {error.strerror}.") from None
    found = _KIND.search(head)
    kind = found[1].decode() if found else "verdicts" if _VERDICT.match(head) else ""
    if kind not in (*get_args(Kind), "judge", "compare", "verdicts"):
        given = f"holds a record of '{kind}'" if kind else "is not a record of losscli"
        raise UsageError(f"'{path}' {given}. Name {_NAMED}, in JSON or JSONL.")
    return kind


def _plausible_run(run: Run) -> Run:
    """Return a run whose ratios are ratios, and whose conditions are what a bench writes."""
    for index, result in enumerate(run.results):
        if isinstance(result, BenchResult):
            ratios = [(each.value, each.low, each.high) for each in result.ratios.values()]
            figures = [*result.speedup.values(), *(figure for each in ratios for figure in each)]
            _check_positive(figures, f"result {index + 1}, a ratio")
            others = result.conditions.get("others")
            reasons = result.conditions.get("throttle_reasons", ())
            texts = isinstance(reasons, list | tuple) and all(isinstance(r, str) for r in reasons)
            if not isinstance(others, float | int | None) or not texts:
                raise RecordError(f"result {index + 1}: 'conditions' are not those of a bench")
    return run


def _plausible(record: Verdicts) -> Verdicts:
    for verdict in record.verdicts:
        for speed in verdict.speed:
            figures = [speed.seconds, *(each for found in speed.ratios.values() for each in found)]
            _check_positive(figures, f"{verdict.file or verdict.id}, a time or ratio")
    return record


def _plausible_comparison(record: ComparisonRecord) -> ComparisonRecord:
    for one in record.comparisons:
        for row in one.rows:
            figures = [row.ratio, row.ratio_low, row.ratio_high]
            _check_positive(figures, f"{row.case}, {row.implementation}, a ratio")
        if not 0 <= one.noise < _MOST:
            raise RecordError(f"{one.run}, the noise: {one.noise:g} is not possible")
    return record


def _check_positive(figures: Sequence[float], what: str) -> None:
    for figure in figures:
        if not 0 < figure < _MOST:
            raise RecordError(f"{what}: {figure:g} is not possible")


def _verdicts(data: bytes) -> Verdicts:
    """Read a verdict a line; a line that a killed run left half is passed over."""
    *lines, last = data.rstrip().split(b"\n")
    found = [read_object(Verdict, line) for line in lines if line.strip()]
    try:
        found.append(read_object(Verdict, last))
    except UNREADABLE:
        if not found:
            raise
    return Verdicts(verdicts=tuple(found))


def _comparison(data: bytes) -> ComparisonRecord:
    """Read a comparison in JSON, or in JSONL: the record without its rows, then a row a line."""
    first, _, rest = data.partition(b"\n")
    try:
        msgspec.json.decode(first)
    except msgspec.DecodeError:
        return read_object(ComparisonRecord, data)
    record = read_object(ComparisonRecord, first)
    rows = [read_object(ComparedRow, line) for line in rest.split(b"\n") if line.strip()]
    by_run = grouped(rows, lambda row: row.run)
    runs = (replace(o, rows=(*o.rows, *by_run.get(o.run, ()))) for o in record.comparisons)
    return replace(record, comparisons=tuple(runs))
