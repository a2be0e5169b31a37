"""Judge third-party loss kernels: ``losscli.judge(path, ...)`` returns a verdict."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from losscli.judge.job import Job
    from losscli.judge.verdict import Verdict


class _Judge(ModuleType):
    def __call__(
        self,
        path: str | PathLike[str],
        *,
        loss: str = "",
        reference: str = "",
        call: str = "",
        device: str = "auto",
        arguments: Sequence[str] = (),
        sizes: Sequence[Sequence[int]] = (),
        dtypes: Sequence[str] = (),
        parameters: Mapping[str, float] | None = None,
        reduction: str = "",
        quick: bool = False,
        timed: bool = True,
        until_first: bool = False,
        require_isolation: bool = False,
    ) -> Verdict:
        """Judge a file as `losscli judge` does.

        The arguments are the fields of a :class:`losscli.judge.job.Job`; ``path`` is its ``file``.

        Returns:
            The verdict: ``verdict.word``, ``verdict.correct``, ``verdict.reward`` and so on.

        Raises:
            UsageError: there is no such file, loss or device.
        """
        from losscli.judge.batch import read_job
        from losscli.judge.judging import judge_job

        given = {
            "file": str(path),
            "loss": loss,
            "reference": reference,
            "call": call,
            "device": device,
            "arguments": list(arguments),
            "reduction": reduction,
            "sizes": [list(size) for size in sizes],
            "dtypes": list(dtypes),
            "parameters": dict(parameters or {}),
            "quick": quick,
            "timed": timed,
            "until_first": until_first,
            "require_isolation": require_isolation,
        }
        return judge_job(read_job(given))


def judge_many(jobs: Sequence[Job], *, workers: int | None = None) -> Iterator[Verdict]:
    """Judge files in parallel; yield each verdict, with the id of its job, when it is ready.

    Every :class:`losscli.judge.job.Job` needs a different id. ``workers`` limits how many files are
    built and checked at once; by default cores and memory do.
    """
    from losscli.judge.pool import LocalPool, usable_gpus

    return LocalPool(workers, gpus=usable_gpus()).run(jobs)


sys.modules[__name__].__class__ = _Judge
