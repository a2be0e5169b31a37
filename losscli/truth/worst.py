"""Keeps the worst of several outcomes of a check."""

from __future__ import annotations

import math

from losscli.reasons import Code
from losscli.runs.records import FAIL, PASS, WARN, Error, VerifyResult
from losscli.truth.distances import Errors
from losscli.truth.problem import Problem
from losscli.truth.tolerances import Outcome

_RANK = {PASS: 0, WARN: 1, FAIL: 2}


class Worst:
    """The worst of several measurements."""

    def __init__(self) -> None:
        self.outcome = Outcome(PASS)
        self.errors: Errors | None = None
        self._rank = (-1, 0.0)

    def add(self, outcome: Outcome, errors: Errors | None = None, circumstance: str = "") -> None:
        """Keep a measurement if it is the worst so far; ``circumstance`` starts its reason."""
        # A failure without errors, such as a wrong shape, is worse than any error.
        without = 0.0 if outcome.status == PASS else math.inf
        rank = (_RANK[outcome.status], errors.ulp if errors else without)
        if rank > self._rank:
            reason = circumstance + outcome.reason if outcome.reason else ""
            self.outcome = Outcome(outcome.status, reason, outcome.code)
            self.errors, self._rank = errors, rank

    def fail(self, reason: str, circumstance: str = "") -> None:
        """Keep a failure without a measured error."""
        self.add(Outcome(FAIL, reason), None, circumstance)

    def result(
        self,
        problem: Problem,
        implementation: str,
        check: str,
        error: Error | None = None,
        reference_error: Error | None = None,
    ) -> VerifyResult:
        """Return the worst outcome as a result."""
        return VerifyResult(
            case=problem.case,
            implementation=implementation,
            check=check,
            status=self.outcome.status,
            reason=self.outcome.reason,
            error=error or Error(),
            reference_error=reference_error or Error(),
            code=Code.WRONG if self.outcome.status == FAIL else self.outcome.code,
            tolerance=problem.tolerance,
            tolerance_ulp=problem.granted,
            terms=problem.terms,
        )


def to_error(loss: Errors | None = None, gradient: Errors | None = None) -> Error:
    """Return errors of a loss and gradients by their public names."""
    return Error(
        value_abs=loss.absolute if loss else None,
        value_rel=loss.relative if loss else None,
        value_ulp=loss.ulp if loss else None,
        grad_ulp=gradient.ulp if gradient else None,
        grad_rel=gradient.relative if gradient else None,
    )
