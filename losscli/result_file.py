"""Read back what a run wrote: the report in JSON or JSONL, or the journal of a run cut short."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

from losscli.cases import Case
from losscli.config.schema import CACHES, DISTRIBUTIONS, DTYPES, MODES, PASSES
from losscli.errors import UsageError, unknown
from losscli.losses import LOSSES, REDUCTIONS
from losscli.records import RecordError, from_json
from losscli.results import (
    FAILED,
    OK,
    SCHEMA_VERSION,
    SKIPPED,
    BenchResult,
    Result,
    Run,
    SelfTestResult,
    VerifyResult,
)

KINDS: Mapping[str, type[Result]] = {
    "bench": BenchResult,
    "verify": VerifyResult,
    "self-test": SelfTestResult,
}
"""What the results of a run are, by its kind."""

_ONE_OF: Mapping[str, Collection[str]] = {
    "pass": PASSES,
    "mode": MODES,
    "cache": CACHES,
    "status": (OK, SKIPPED, FAILED),
    "dtype": DTYPES,
    "reduction": REDUCTIONS,
    "distribution": DISTRIBUTIONS,
}
"""What the texts of a case and of a result of bench may be."""
_LONGEST = 1e9
"""Seconds that no call takes; what is not far beyond can be divided and squared."""
_EMPTY: dict[str, Any] = {"command": [], "created": "", "environment": {}}
_HEADER: Mapping[str, Any] = {
    key: hint for key, hint in get_type_hints(Run).items() if key != "results"
}


def read_run(path: Path, kind: str) -> Run:
    """Return the run of a file.

    The last line of JSONL counts only if it is whole: a run that is killed may leave half of one.

    Raises:
        UsageError: there is no such file, it is not ours, not of this kind or of a later version.
    """
    header, records = _parse(path)
    version = header.get("schema_version")
    if not isinstance(version, int) or "kind" not in header:
        raise _not_ours(path)
    if version > SCHEMA_VERSION:
        raise UsageError(
            f"{path} was written by a later losscli: its schema_version is {version}, this "
            f"losscli reads up to {SCHEMA_VERSION}. Upgrade losscli."
        )
    if header["kind"] != kind:
        raise UsageError(f"{path} holds a run of '{header['kind']}'. Name one of `losscli {kind}`.")
    if kind not in KINDS:
        raise _not_ours(path)
    where = ["the header"]
    try:
        return _run(header, records, where)
    except RecordError as error:
        raise UsageError(f"{path}: {where[0]} is not one of losscli: {error}.") from None
    except RecursionError:
        raise UsageError(f"{path}: {where[0]} is nested too deeply. The file is damaged.") from None


def _run(header: dict[str, Any], records: list[Any], where: list[str]) -> Run:
    """Return the run; ``where`` has, at any time, what is being read."""
    last: tuple[Any, Case] | None = None
    head = _EMPTY | header
    facts = {key: from_json(hint, head[key]) for key, hint in _HEADER.items() if key in head}
    results: list[Result] = []
    for index, record in enumerate(records, start=1):
        where[0] = f"result {index}"
        if not isinstance(record, dict):
            raise RecordError(f"expected an object, found {record!r:.40}")
        # The results of a case follow each other, and share it.
        given = record.get("case")
        if last is None or last[0] != given:
            last = given, _case(given)
        record["case"] = last[1]
        result = from_json(KINDS[header["kind"]], record)
        if isinstance(result, BenchResult):
            _check(result)
        results.append(result)
    return Run(**facts, results=tuple(results))


def _check(result: BenchResult) -> None:
    """Refuse what has the right types and cannot have been measured."""
    _check_how(result.pass_, result.mode, result.cache, result.status)
    if result.seconds is None:
        return
    samples = result.seconds.samples or (result.seconds.median,)
    for field, seconds in (
        ("median", result.seconds.median),
        ("samples", min(samples)),
        ("samples", max(samples)),
    ):
        if not 0 < seconds < _LONGEST:
            raise RecordError(f"'seconds': '{field}': {seconds:g} s is no time")


@cache
def _check_how(pass_: str, mode: str, cache: str, status: str) -> None:
    """Refuse what is none of the few texts; each combination is looked at once."""
    for field, text in {"pass": pass_, "mode": mode, "cache": cache, "status": status}.items():
        _check_text(field, text)


def _check_text(field: str, text: str) -> None:
    if text not in _ONE_OF[field]:
        raise RecordError(f"'{field}': {unknown(field, text, _ONE_OF[field]).removesuffix('.')}")


def _case(record: Any) -> Case:
    case: Case = from_json(Case, record)
    if case.loss not in LOSSES or case.params.keys() != {p.name for p in case.spec.parameters}:
        raise RecordError(f"this losscli has no loss '{case.loss}' with these parameters")
    for field in ("dtype", "reduction", "distribution"):
        _check_text(field, getattr(case, field))
    return case


def _parse(path: Path) -> tuple[dict[str, Any], list[Any]]:
    """Return the header and the results, each as it was parsed."""
    text = _text(path)
    first, newline, rest = text.partition("\n")
    header = _object(first)
    if newline and header is not None and "results" not in header:
        return header, _lines(path, rest)
    try:
        whole = _loads(text)
    except ValueError as error:
        if text.lstrip().startswith("{") and '"schema_version"' in text[:200]:
            raise UsageError(f"{path} is cut off or damaged: {error}.") from None
        raise _not_ours(path) from None
    if not isinstance(whole, dict) or not isinstance(whole.get("results"), list):
        raise _not_ours(path)
    return whole, whole.pop("results")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(f"there is no file '{path}'. Name a result in JSON or JSONL.") from None
    except IsADirectoryError:
        raise UsageError(f"'{path}' is a directory. Name a result in JSON or JSONL.") from None
    except UnicodeDecodeError:
        raise _not_ours(path) from None
    except OSError as error:
        raise UsageError(f"cannot read '{path}': {error.strerror}.") from None


def _lines(path: Path, text: str) -> list[Any]:
    """Parse one result a line; of the last one half may be missing."""
    lines = text.splitlines()
    with contextlib.suppress(ValueError):  # all at once, which is faster, where all is well
        return list(_loads(f"[{','.join(lines)}]"))
    records = []
    for number, line in enumerate(lines, start=2):
        record = _object(line)
        if record is not None:
            records.append(record)
        elif number <= len(lines):
            raise UsageError(f"{path}:{number}: this line is not JSON. The file is damaged.")
    return records


def _object(line: str) -> dict[str, Any] | None:
    """Parse an object, or return None."""
    try:
        value = _loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _loads(text: str) -> Any:
    """Parse JSON; whatever cannot be is a ValueError."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _not_ours(path: Path) -> UsageError:
    return UsageError(
        f"'{path}' is not a result of losscli. Name a file that `losscli bench` wrote with "
        "--format json or jsonl."
    )
