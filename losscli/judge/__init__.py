"""Judges loss kernels of others: ``losscli.judge(path, ...)`` returns a verdict."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from losscli.judge.verdict import Verdict


class _Judge(ModuleType):
    """This package, which is a function as well."""

    def __call__(self, path: str, **options: Any) -> Verdict:
        """Judge a file.

        Args:
            path: ``FILE``, ``FILE:NAME``, ``FILE@REVISION`` or ``FILE@REVISION:NAME``.
            **options: the other fields of :class:`losscli.judge.job.Job`: ``loss``, ``reference``,
                ``device``, ``sizes``, ``dtypes``, ``quick`` and so on.

        Returns:
            The verdict.

        Raises:
            UsageError: there is no such file, loss or device.
        """
        from losscli.judge.job import Job
        from losscli.judge.stages import judge_job

        return judge_job(Job(file=str(path), **options))


sys.modules[__name__].__class__ = _Judge
