"""What a check is, and how it keeps the worst of several measurements."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from losscli.results import FAIL, PASS, WARN, Error, VerifyResult
from losscli.verify.errors import Errors
from losscli.verify.problem import Problem
from losscli.verify.subject import Subject
from losscli.verify.tolerances import Verdict

_RANK = {PASS: 0, WARN: 1, FAIL: 2}


@dataclass(frozen=True)
class Check:
    """One thing that is verified."""

    name: str
    pass_: str
    """The pass of the config that asks for it: ``forward`` or ``forward_backward``."""
    catches: str
    """What a subject that fails it got wrong, in a line."""
    run: Callable[[Problem, Subject], Iterator[VerifyResult]]
    """Yield a result for each thing judged; SubjectError where the subject raised."""


class Worst:
    """The worst of several measurements of one thing."""

    def __init__(self) -> None:
        self.verdict = Verdict(PASS)
        self.errors: Errors | None = None
        self._rank = (-1, 0.0)

    def add(self, verdict: Verdict, errors: Errors | None, circumstance: str) -> None:
        """Keep a measurement if it is the worst so far; ``circumstance`` opens its reason."""
        rank = (_RANK[verdict.status], errors.ulp if errors else math.inf)
        if rank > self._rank:
            reason = circumstance + verdict.reason if verdict.reason else ""
            self.verdict, self.errors, self._rank = Verdict(verdict.status, reason), errors, rank

    def result(
        self,
        problem: Problem,
        implementation: str,
        check: str,
        error: Error,
        reference_error: Error | None = None,
    ) -> VerifyResult:
        """Return the verdict as a result, with errors under their public names."""
        return VerifyResult(
            case=problem.case,
            implementation=implementation,
            check=check,
            status=self.verdict.status,
            reason=self.verdict.reason,
            error=error,
            reference_error=reference_error or Error(),
            tolerance=problem.tolerance,
        )


def to_error(loss: Errors | None = None, gradient: Errors | None = None) -> Error:
    """Return errors of a loss and of gradients under their public names."""
    return Error(
        value_abs=loss.absolute if loss else None,
        value_rel=loss.relative if loss else None,
        value_ulp=loss.ulp if loss else None,
        grad_ulp=gradient.ulp if gradient else None,
        grad_rel=gradient.relative if gradient else None,
    )
