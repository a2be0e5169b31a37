"""Judge a batch of jobs: skip finished ones, look up cached ones, send the rest to a pool."""

import os
from collections.abc import Collection, Generator, Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path

from losscli.errors import UnfitError, UsageError
from losscli.files.reading import RECORD_BYTES, read_bytes
from losscli.judge.job import Job
from losscli.judge.pool import Item, JudgePool
from losscli.judge.verdict import Verdict
from losscli.judge.verdict_cache import VerdictCache
from losscli.runs.encoding import UNREADABLE, RecordError, read_json


def judge_batch(
    items: Iterable[Item],
    pool: JudgePool,
    *,
    cache: VerdictCache | None = None,
    finished: Collection[str] = (),
) -> Generator[Verdict, None, None]:
    """Yield the verdict on each job that is not finished, when it is ready.

    ``items`` are jobs, or verdicts on jobs that cannot be judged; ``finished`` are ids of jobs that
    have a verdict. ``cache`` is read and filled.
    """
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
    """Return the verdicts of an interrupted run's output, and repair its last line.

    A half-written last line is cut off, and its job is judged again. A missing file has no
    verdicts.

    Raises:
        UsageError: another line is not a verdict, or the file cannot be read.
        UnfitError: the last line cannot be repaired.
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
        whole: list[Verdict] = []
        with suppress(UsageError):  # else only its newline is missing
            whole = [_verdict(last, path, len(lines) + 1)]
        _repair(path, len(data) - len(last), last + b"\n" if whole else b"")
        verdicts += whole
    return verdicts


def _verdict(line: bytes, path: Path, number: int) -> Verdict:
    try:
        return read_json(Verdict, line)
    except (RecordError, *UNREADABLE) as error:
        raise UsageError(
            f"{path}:{number}: this line is not a verdict: {error}. Name an output that "
            "`losscli judge --format jsonl` wrote."
        ) from None


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
