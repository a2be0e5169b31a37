"""Judges a batch of jobs: skips those that are finished, looks others up, sends on the rest."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator
from contextlib import closing

from losscli.judge.cache import VerdictCache
from losscli.judge.job import Job
from losscli.judge.pool import Item, Pool
from losscli.judge.verdict import Verdict


def judge_batch(
    items: Iterable[Item],
    pool: Pool,
    *,
    cache: VerdictCache | None = None,
    finished: Collection[str] = (),
) -> Generator[Verdict, None, None]:
    """Yield the verdict on each job that is not finished, as it comes.

    Args:
        items: jobs, and verdicts on those that cannot be judged.
        pool: judges what is in no cache.
        cache: where verdicts are found and kept; None is no cache.
        finished: ids of jobs that have a verdict already.
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
