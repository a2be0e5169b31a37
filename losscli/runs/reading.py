"""Read runs: a JSON or JSONL report, or an interrupted run's journal."""

import contextlib
from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import Any

import msgspec

from losscli.cases.axes import CHANGING
from losscli.cases.case import Case
from losscli.errors import UsageError
from losscli.files.reading import RECORD_BYTES, read_bytes
from losscli.losses import EVERY_LOSS
from losscli.runs import records
from losscli.runs.encoding import UNREADABLE, RecordError, read_json, read_value
from losscli.runs.former_names import updated
from losscli.runs.records import SCHEMA_VERSION, BenchResult, Kind, Result, Run

_Fields = dict[str, msgspec.Raw]


def read_run(path: Path, kind: Kind) -> Run:
    """Return the run in a file, without an incomplete last line; UsageError for any other file."""
    return run_of(path, data_of(path), kind)


def run_of(path: Path, data: bytes, kind: Kind) -> Run:
    """Return the run in the data of a file; see :func:`read_run`."""
    fields, text, is_lines = _open(path, data)
    where = "the header"
    try:
        keys = [key for key in records.Header.__struct_encode_fields__ if key in fields]
        values = {key: msgspec.json.decode(fields[key]) for key in keys}
        _check_kind(path, values, kind)
        header, cut_off = read_value(records.Header, updated(values)), False
        where = "a result"
        results: Sequence[Result]
        if is_lines:
            results, cut_off = _lines(path, records.RESULTS[kind], text)
        else:
            results = read_json(list[records.RESULTS[kind]], text)  # type: ignore[valid-type]
        return Run(**msgspec.structs.asdict(header), results=_plausible(results), cut_off=cut_off)
    except RecordError as error:
        where = where if error.index is None else f"result {error.index + 1}"
        raise UsageError(f"{path}: {where} is not valid: {error}.") from None
    except UNREADABLE as error:
        raise damaged(path, error) from None


def _check_kind(path: Path, values: dict[str, Any], kind: Kind) -> None:
    version, found = values.get("schema_version"), values.get("kind")
    if not isinstance(version, int) or found is None:
        raise _not_ours(path)
    if version > SCHEMA_VERSION:
        known = f"its schema_version is {version}, this losscli reads up to {SCHEMA_VERSION}"
        raise UsageError(f"{path} was written by a later losscli: {known}. Upgrade losscli.")
    if found != kind:
        raise UsageError(f"{path} holds a run of '{found}'. Name one of `losscli {kind}`.")


def _plausible(results: Sequence[Result]) -> tuple[Result, ...]:
    """Reject well-typed but impossible records. Consecutive results of a case share its object."""
    case = None
    seen: dict[object, int] = {}
    for index, result in enumerate(results):
        if isinstance(result, records.TimerTestResult):
            continue
        try:
            if result.case == case:
                msgspec.structs.force_setattr(result, "case", case)
            else:
                case = result.case
                _check_case(case)
            if isinstance(result, BenchResult):
                _check_bench(result, index, seen)
        except RecordError as error:
            raise RecordError(str(error), index) from None
    return tuple(results)


def _check_bench(result: BenchResult, index: int, seen: dict[object, int]) -> None:
    seconds, conditions = result.seconds, result.conditions
    if seconds and seconds.processes and sum(seconds.processes) != len(seconds.samples):
        raise RecordError("'seconds': 'processes': expected the number of samples of each process")
    reasons = conditions.get("throttle_reasons", [])
    texts = isinstance(reasons, list) and all(isinstance(reason, str) for reason in reasons)
    if not isinstance(conditions.get("others"), float | int | None) or not texts:
        raise RecordError("'conditions' are not those of a bench")
    row = (result.table, result.case, result.pass_, result.mode, result.cache)
    first = seen.setdefault((*row, result.implementation), index)
    if first != index:
        told = f"{result.case.name}, {result.implementation}, {result.pass_.replace('_', '+')}"
        raise RecordError(f"it repeats result {first + 1} ({told}); remove one of the two")


def _check_case(case: Case) -> None:
    if case.loss not in EVERY_LOSS or case.params.keys() != {p.name for p in case.spec.parameters}:
        raise RecordError(f"this losscli has no loss '{case.loss}' with these parameters")
    grad_output = case.grad_output
    if grad_output != CHANGING and (isinstance(grad_output, str) or not isfinite(grad_output)):
        raise RecordError(f"'grad_output': {grad_output!s:.40} is neither a number nor {CHANGING}")
    if not -(2**63) <= case.seed < 2**63:
        raise RecordError("'seed': a number of more than 64 bits")
    for field, shape in (("shape", case.shape), ("target_shape", case.target_shape)):
        if not all(0 <= size < 2**63 for size in shape):
            raise RecordError(f"'{field}': {shape!s:.40} is not a shape")


def _open(path: Path, data: bytes) -> tuple[_Fields, bytes, bool]:
    first, newline, rest = data.partition(b"\n")
    with contextlib.suppress(*UNREADABLE):
        fields = msgspec.json.decode(first, type=_Fields)
        if "results" not in fields and newline:
            return fields, rest, True
    try:
        fields = msgspec.json.decode(data, type=_Fields)
        return fields, bytes(fields["results"]), False
    except (msgspec.ValidationError, KeyError):
        raise _not_ours(path) from None
    except UNREADABLE as error:
        if data.lstrip().startswith(b"{") and b'"schema_version"' in data[:200]:
            raise damaged(path, error) from None
        raise _not_ours(path) from None


def data_of(path: Path) -> bytes:
    """Return the data of a result file; UsageError if it cannot be read."""
    another = "Name a result in JSON or JSONL."
    try:
        return read_bytes(path, RECORD_BYTES)
    except FileNotFoundError:
        raise UsageError(f"there is no file '{path}'. {another}") from None
    except IsADirectoryError:
        raise UsageError(f"'{path}' is a directory. {another}") from None
    except OSError as error:
        raise UsageError(f"cannot read '{path}': {error.strerror}.") from None


def _lines(path: Path, kind: type[Result], text: bytes) -> tuple[list[Result], bool]:
    """Read one result a line, and whether an incomplete last line was dropped."""
    lines = text.rstrip().split(b"\n") if text.strip() else []
    results = []
    for index, line in enumerate(lines):
        try:
            results.append(read_json(kind, line))
        except RecordError as error:
            raise RecordError(str(error), index) from None
        except UNREADABLE:
            if index == len(lines) - 1:
                return results, True
            said = f"{path}:{index + 2}: this line is not JSON."
            raise UsageError(f"{said} The file is damaged.") from None
    return results, False


def damaged(path: Path, error: Exception) -> UsageError:
    """Return the error of a file that is not JSON."""
    why = "nested too deeply" if isinstance(error, RecursionError) else str(error)
    return UsageError(f"{path} is cut off or damaged: {why}.")


def _not_ours(path: Path) -> UsageError:
    advice = "Name a file that `losscli bench` wrote with --format json or jsonl."
    return UsageError(f"'{path}' is not a result of losscli. {advice}")
