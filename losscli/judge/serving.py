"""A process of a pool: gets jobs, judges one after the other, sends their verdicts."""

from __future__ import annotations

import traceback
from collections.abc import Callable

import click

from losscli.errors import LosscliError, UsageError
from losscli.judge.job import Job
from losscli.judge.jobs import check_job
from losscli.judge.parts import ReasonCode
from losscli.judge.unjudged import not_judged
from losscli.judge.verdict import Verdict
from losscli.processes import to_parent

Judge = Callable[..., Verdict]
"""``judge_job(job, notify=...)``."""
GRACE = 10.0
"""Seconds that a process has to clean up after its parent has ended."""
_LOG_CHARACTERS = 4000


def main(judge: Judge | None = None) -> None:
    """Judge until the pool ends; ``judge`` is a test's fake."""
    with to_parent(GRACE) as channel:
        if judge is None:
            from losscli.judge.stages import judge_job  # imports torch

            judge = judge_job
        for job in channel:
            channel.put(_judge(job, judge))


def _judge(job: Job, judge: Judge) -> Verdict:
    """Return the verdict on a job, whatever goes wrong."""

    def notify(note: str) -> None:
        click.echo(f"losscli: {job.file}: {note}", err=True)

    try:
        check_job(job)
        return judge(job, notify=notify)
    except LosscliError as error:
        code: ReasonCode = "bad_job" if isinstance(error, UsageError) else "error"
        return not_judged(job, code, str(error))
    except Exception as error:
        text = f"losscli itself failed: {type(error).__name__}: {error}"
        return not_judged(job, "error", text, log=traceback.format_exc()[-_LOG_CHARACTERS:])
