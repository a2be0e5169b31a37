"""What all adapters do: judge one file by the loss that was named, and keep its figures."""

from __future__ import annotations

import os
from typing import Any

from losscli.axes import PASSES
from losscli.errors import UsageError
from losscli.judge.job import Job
from losscli.judge.jobs import check_job
from losscli.judge.pool import judge_one
from losscli.judge.verdict import Verdict, score, speedup

VARIABLE = "LOSSCLI_JUDGE_LOSS"
"""The environment variable that names the loss where no argument does."""


def judge_file(path: str, loss: str = "", **fields: Any) -> Verdict:
    """Return the verdict on a file.

    Args:
        path: of the file.
        loss: that it is to compute; LOSSCLI_JUDGE_LOSS, or the file's own ``Model``, where empty.
        **fields: of the job.

    Raises:
        UsageError: the file, the loss or the reference is at fault, not what is judged.
    """
    loss = loss or ("" if fields.get("reference") else os.environ.get(VARIABLE, ""))
    job = Job(file=path, id=path, loss=loss, **fields)
    check_job(job)
    verdict = judge_one(job)
    for reason in verdict.reasons:
        if reason.code in ("bad_job", "bad_reference"):
            raise UsageError(reason.text)
    return verdict


def metrics(verdict: Verdict) -> dict[str, float]:
    """Return the figures of a verdict for a search; more is better, but for seconds."""
    found = {"combined_score": score(verdict), "correct": float(verdict.right)}
    for pass_ in PASSES:
        timed = [each for each in verdict.speed if each.pass_ == pass_]
        if (ratio := speedup(verdict, pass_)) is not None:
            found[f"speedup_{pass_}"] = ratio
        if timed:
            found[f"seconds_{pass_}"] = max(each.seconds for each in timed)
    return found
