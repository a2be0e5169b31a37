"""What a check is, and how it keeps the worst of several measurements."""

from __future__ import annotations

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
        self.verdict, self.errors = Verdict(PASS), Errors()

    def add(self, verdict: Verdict, errors: Errors, circumstance: str) -> None:
        """Keep a measurement if it is the worst so far; ``circumstance`` opens its reason."""
        if (_RANK[verdict.status], errors.ulp) >= (_RANK[self.verdict.status], self.errors.ulp):
            reason = circumstance + verdict.reason if verdict.reason else ""
            self.verdict, self.errors = Verdict(verdict.status, reason), errors

    def value_result(self, problem: Problem, subject: Subject) -> VerifyResult:
        """Return the result for a loss, with PyTorch's own error beside it."""
        reference = value_error(problem.reference_errors)
        return self._result(problem, subject, "value", value_error(self.errors), reference)

    def gradient_result(self, problem: Problem, subject: Subject, check: str) -> VerifyResult:
        """Return the result for a gradient."""
        return self._result(problem, subject, check, gradient_error(self.errors), Error())

    def _result(
        self, problem: Problem, subject: Subject, check: str, error: Error, reference: Error
    ) -> VerifyResult:
        return VerifyResult(
            case=problem.case,
            implementation=subject.name,
            check=check,
            status=self.verdict.status,
            reason=self.verdict.reason,
            error=error,
            reference_error=reference,
            tolerance=problem.tolerance,
        )


def value_error(errors: Errors) -> Error:
    """Return the errors of a loss under their public names."""
    return Error(value_abs=errors.absolute, value_rel=errors.relative, value_ulp=errors.ulp)


def gradient_error(errors: Errors) -> Error:
    """Return the errors of a gradient under their public names."""
    return Error(grad_ulp=errors.ulp, grad_rel=errors.relative)
