"""The verdict on a job that could not be judged, and why."""

from __future__ import annotations

from losscli import __version__
from losscli.judge.job import Job
from losscli.judge.parts import JudgeReason, ReasonCode
from losscli.judge.verdict import Verdict

MODEL = "Model"
"""What a file is judged against where a job names neither a loss nor a reference."""


def not_judged(job: Job, code: ReasonCode, text: str, *, log: str = "") -> Verdict:
    """Return the verdict NOT JUDGED on a job.

    Args:
        job: what was to be judged; of a broken line, whatever could be read of it.
        code: one of those that go with NOT JUDGED.
        text: what was expected and what was given.
        log: what else may help to find the cause.
    """
    return Verdict(
        id=job.id or job.file,
        file=job.file,
        word="NOT JUDGED",
        against=job.loss or job.reference or MODEL,
        device=job.device,
        reasons=(JudgeReason(code, "parse", text),),
        log=log,
        losscli=__version__,
    )
