"""A process of a pool: reads jobs, judges one after the other, writes their verdicts."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from typing import IO

import click

from losscli.errors import LosscliError, UsageError
from losscli.judge.job import Job
from losscli.judge.jobs import read_line
from losscli.judge.parts import ReasonCode
from losscli.judge.unjudged import not_judged
from losscli.judge.verdict import Verdict
from losscli.runs.encoding import json_line

Judge = Callable[..., Verdict]
"""``judge_job(job, notify=...)``."""
GRACE = 10.0
"""Seconds that a process has to clean up after its parent has ended."""
_PR_SET_PDEATHSIG = 1
_POLL = 0.5
_LOG_CHARACTERS = 4000


def main(judge: Judge | None = None) -> None:
    """Serve the process on the other end of standard input and output until it closes them.

    What is printed meanwhile must not mix with the verdicts: standard output becomes standard
    error. ``judge`` is a test's fake.
    """
    with os.fdopen(os.dup(0), "rb") as requests, os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stdout = sys.stderr
        with contextlib.suppress(BrokenPipeError):
            serve(requests, answers, judge)


def serve(requests: Iterable[bytes], answers: IO[bytes], judge: Judge | None = None) -> None:
    """Answer each line, a job, with a line, its verdict."""
    if judge is None:
        from losscli.judge.stages import judge_job  # imports torch

        judge = judge_job
    for line in requests:
        item = read_line(line, "job")
        verdict = item if isinstance(item, Verdict) else _judge(item, judge)
        answers.write(json_line(verdict.to_json()).encode() + b"\n")
        answers.flush()


def end_with_parent(grace: float = GRACE) -> None:
    """Interrupt this process when its parent ends, and end it some seconds later.

    Only Linux tells a process at once; elsewhere it notices.
    """
    parent = os.getppid()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_POLL)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(grace)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def _judge(job: Job, judge: Judge) -> Verdict:
    """Return the verdict on a job, whatever goes wrong."""

    def notify(note: str) -> None:
        click.echo(f"losscli: {job.file}: {note}", err=True)

    try:
        return judge(job, notify=notify)
    except LosscliError as error:
        code: ReasonCode = "bad_job" if isinstance(error, UsageError) else "error"
        return not_judged(job, code, str(error))
    except Exception as error:
        text = f"losscli itself failed: {type(error).__name__}: {error}"
        return not_judged(job, "error", text, log=traceback.format_exc()[-_LOG_CHARACTERS:])
