"""Judge a batch of jobs: read them, skip finished ones, look up cached ones, pool the rest."""

import math
import os
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from losscli.config.fields import check_device, check_name
from losscli.config.sizes import LARGEST
from losscli.errors import UnfitError, UsageError, unknown
from losscli.files.reading import RECORD_BYTES, read_bytes
from losscli.files.record import Record
from losscli.implementations.allowance import Allowance
from losscli.implementations.source import Source
from losscli.judge.job import Job
from losscli.judge.pool import Item, JudgePool
from losscli.judge.verdict import Verdict, not_judged
from losscli.judge.verdict_cache import VerdictCache
from losscli.judge.verdict_parts import ended
from losscli.losses import EVERY_LOSS, REDUCTIONS
from losscli.reasons import Code
from losscli.runs.encoding import UNREADABLE, RecordError, read_json, read_value
from losscli.units import format_bytes

OPTIONS = {"size": "sizes", "dtype": "dtypes", "param": "parameters"}
"""Keys that may have the name of the command's option instead."""
_LONGEST = 2**20
_KINDS = {list: "an array", str: "a text", bool: "true or false", type(None): "null"}


def judge_batch(
    items: Iterable[Item],
    pool: JudgePool,
    *,
    cache: VerdictCache | None = None,
    finished: Collection[str] = (),
) -> Generator[Verdict, None, None]:
    """Yield the verdict on each job whose id is not ``finished``, when it is ready."""
    asked: dict[str, Job] = {}

    def left() -> Iterator[Item]:
        for item in items:
            if item.id in finished:
                continue
            found = cache.find(item) if cache and isinstance(item, Job) else None
            if isinstance(item, Job) and not found:
                asked[item.id] = item
            yield found or item

    with closing(pool.run(left())) as verdicts:
        for verdict in verdicts:
            job = asked.pop(verdict.id, None)
            if cache and job:
                cache.keep(job, verdict)
            yield verdict


def read_finished(path: Path) -> list[Verdict]:
    """Return the verdicts of an interrupted run's output; a missing file has none.

    A half-written last line is cut off, and its job is judged again.
    """
    try:
        data = read_bytes(path, RECORD_BYTES)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UsageError(f"--resume '{path}' cannot be read: {error.strerror}.") from None
    *lines, last = data.split(b"\n")
    verdicts = [_verdict(line, path, number) for number, line in enumerate(lines, 1) if line]
    if last:
        torn = _is_torn(last)
        if not torn:  # only its newline is missing
            verdicts.append(_verdict(last, path, len(lines) + 1))
        _repair(path, len(data) - len(last), b"" if torn else last + b"\n")
    return verdicts


def _is_torn(line: bytes) -> bool:
    """Tell the beginning of a verdict from a file that is none: that must stay as it is."""
    with suppress(*UNREADABLE):
        msgspec.json.decode(line)
        return False
    start = b'{"id": "'  # of each verdict in an output
    return start.startswith(line[: len(start)])


def _verdict(line: bytes, path: Path, number: int) -> Verdict:
    try:
        return read_json(Verdict, line)
    except (RecordError, *UNREADABLE) as error:
        text = f"{path}:{number}: this line is not a verdict: {error}. Name an output that "
        raise UsageError(f"{text}`losscli judge --format jsonl` wrote.") from None


def _repair(path: Path, length: int, last: bytes) -> None:
    try:
        with path.open("r+b") as file:
            file.seek(length)
            file.truncate()
            file.write(last)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise UnfitError(f"--resume '{path}' cannot be repaired: {error.strerror}.") from None


def read_jobs(
    lines: Iterable[bytes], name: str, defaults: Mapping[str, Any] | None = None
) -> Iterator[Job | Verdict]:
    """Yield the job of each line of a file that is not empty, or the verdict that it is broken."""
    seen: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{name}:{number}"
        item = _read_line(line, where, defaults or {})
        if isinstance(item, Job) and item.id in seen:
            text = f"the id '{item.id}' is that of line {seen[item.id]} as well"
            yield _broken(item, where, f"{text}. Give each job a different id.")
        else:
            seen[item.id] = number
            yield item


def _read_line(line: bytes, where: str, defaults: Mapping[str, Any]) -> Job | Verdict:
    value: dict[str, Any] = {}
    try:
        value = {**defaults, **_object(line)}
        for field in ("limits", "parameters"):
            if isinstance(value.get(field), dict) and field in defaults:
                value[field] = {**defaults[field], **value[field]}
        return read_job(value)
    except (UsageError, RecordError) as error:
        known = {key: value.get(key) for key in ("file", "id", "loss", "reference")}
        texts = {key: text for key, text in known.items() if text and isinstance(text, str)}
        job = replace(Job(file="", id=texts.get("file") or where), **texts)
        return _broken(job, where, str(error))


def read_job(value: Mapping[str, Any]) -> Job:
    """Return a JSON object's job; RecordError for a field of another type, else UsageError."""
    value = {OPTIONS.get(key, key): given for key, given in value.items()}
    _refuse_unknown(value, Job)
    if isinstance(value.get("limits"), dict):
        _refuse_unknown(value["limits"], Allowance)
    job = read_value(Job, value)
    check_job(job)
    return job


def check_job(job: Job) -> None:
    """Raise UsageError for a job that no machine can judge: a file or a value is wrong."""
    Source.read(job.file)
    if job.reference:
        Source.read(job.reference)
    check_device(job.device)
    if job.loss:
        spec = EVERY_LOSS[check_name("loss", job.loss, EVERY_LOSS)]
        known = {parameter.name: parameter for parameter in spec.parameters}
        for name, value in job.parameters.items():
            if name not in known:
                none = f"{job.loss} has no parameters, but '{name}' is given."
                raise UsageError(unknown("parameter", name, known) if known else none)
            if complaint := known[name].check(value):
                raise UsageError(f"{complaint}.")
    if job.call:
        Source.read(job.file).check_call(job.call, job.loss)
    if job.reduction:
        reductions = EVERY_LOSS[job.loss].reductions if job.loss else REDUCTIONS
        check_name("reduction", job.reduction, reductions)
    for shape in job.sizes:
        if min(shape, default=0) < 0 or math.prod(shape) > LARGEST:
            raise UsageError(f"{list(shape)} is not a size: expected extents such as [1024, 1024].")
    for field in Allowance.__struct_fields__:
        value = getattr(job.limits, field)
        if not (value >= 0 and math.isfinite(value)):
            raise UsageError(f"the limit '{field}' must be at least 0, but is {value:g}.")


def lines_of(descriptor: int) -> Iterator[bytes]:
    """Yield the lines of a file descriptor as they arrive; UsageError for too long a line.

    It holds no lock of Python's while it waits, so the program can end in the meantime.
    """
    rest = b""
    while block := os.read(descriptor, 2**16):
        *lines, rest = (rest + block).split(b"\n")
        yield from lines
        if len(rest) > _LONGEST:
            most = format_bytes(_LONGEST)
            raise UsageError(f"a line of the jobs is longer than {most}. Give each job a line.")
    if rest:
        yield rest


def _object(line: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(line)
    except UNREADABLE as error:
        raise UsageError(f"this line is not JSON: {error}.") from None
    if not isinstance(value, dict):
        kind = _KINDS.get(type(value), "a number")
        raise UsageError(f'expected an object such as {{"file": "kernel.py"}}, found {kind}.')
    return value


def _refuse_unknown(value: Mapping[str, Any], kind: type[Record]) -> None:
    fields = kind.__struct_encode_fields__
    for key in value:
        if key not in fields:
            raise UsageError(unknown("key", key, fields))


def _broken(job: Job, where: str, why: str) -> Verdict:
    return not_judged(job, Code.BAD_JOB, f"{where}: {ended(why)}")
