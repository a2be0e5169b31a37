"""Judges loss kernels of others: ``losscli.judge(path, ...)`` returns a verdict."""

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
        """Judge a file; the arguments are the keys of a job and the options of the command.

        Args:
            path: ``FILE``, ``FILE:NAME``, ``FILE@REVISION`` or ``PACKAGE.MODULE:NAME``.
            loss: the loss whose oracle is the reference; found by value where it is left out.
            reference: a file whose ``Model`` is the truth.
            call: how to call it: ``"fused(input, target)[0].mean()"``.
            device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
            arguments: the order of the operands, where names do not tell.
            sizes: the sizes to be timed.
            dtypes: the dtypes to be judged and timed.
            parameters: of the loss.
            reduction: ``mean``, ``sum`` or ``none``.
            quick: make the small checks and a short timing only.
            timed: time it.
            until_first: end at the first reason.
            require_isolation: judge nothing where a part of the isolation is missing.

        Returns:
            The verdict: ``verdict.word``, ``verdict.correct``, ``verdict.reward`` and so on.

        Raises:
            UsageError: there is no such file, loss or device.
        """
        from losscli.judge.job import Job
        from losscli.judge.jobs import check_job
        from losscli.judge.judging import judge_job
        from losscli.runs.encoding import read_value

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
        job = read_value(Job, given)
        check_job(job)
        return judge_job(job)


def judge_many(jobs: Sequence[Job], *, workers: int | None = None) -> Iterator[Verdict]:
    """Judge files side by side, and yield each verdict as it comes; its id is that of its job.

    Each job, a :class:`losscli.judge.job.Job`, has an id of its own. ``workers`` is how many are
    built and checked at once; by default as cores and memory allow.
    """
    from losscli.judge.batch import judge_batch
    from losscli.judge.pool import LocalPool, default_workers, usable_gpus

    gpus = usable_gpus()
    pool = LocalPool(workers or default_workers(len(gpus)), gpus=gpus)
    return judge_batch(jobs, pool)


sys.modules[__name__].__class__ = _Judge
