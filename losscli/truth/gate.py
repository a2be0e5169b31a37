"""The worst of several outcomes, and the gate: wrong implementations are not timed.

PyTorch's functions lose digits of some elements, such as a logit that fits its label, and must be
timed all the same, as the baseline. So ``functional`` only gets a warning if the norm of its error
is within an element's allowed ULP.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from losscli.cases.axes import PassName
from losscli.cases.case import Case
from losscli.implementations import IMPLEMENTATIONS, Implementation
from losscli.reasons import Code
from losscli.runs.measurements import Error
from losscli.runs.records import FAIL, PASS, WARN, VerifyResult
from losscli.truth.distances import Errors
from losscli.truth.problem import Problem
from losscli.truth.setup import ThirdParty
from losscli.truth.tolerances import ELEMENT_ULP, Outcome

CHECK = "gate"
_RANK = {PASS: 0, WARN: 1, FAIL: 2}


class Worst:
    """The worst of several measurements."""

    def __init__(self) -> None:
        self.outcome = Outcome(PASS)
        self.errors: Errors | None = None
        self.only_limits = True
        """Whether all failures are only limitations."""
        self._rank = (-1, False, 0.0)

    def add(
        self, outcome: Outcome, errors: Errors | None = None, where: str = "", limits: bool = False
    ) -> None:
        """Keep a measurement if it is the worst; ``where`` starts its reason.

        ``limits``: a failure is only a limitation, less than any other.
        """
        self.only_limits = self.only_limits and (limits or outcome.status != FAIL)
        # A failure without errors, such as a wrong shape, is worse than any error.
        without = 0.0 if outcome.status == PASS else math.inf
        rank = (_RANK[outcome.status], not limits, errors.ulp if errors else without)
        if rank > self._rank:
            reason = where + outcome.reason if outcome.reason else ""
            self.outcome = Outcome(outcome.status, reason, outcome.code)
            self.errors, self._rank = errors, rank

    def fail(self, reason: str, where: str = "") -> None:
        """Keep a failure without a measured error."""
        self.add(Outcome(FAIL, reason), None, where)

    def result(
        self, problem: Problem, implementation: str, check: str, error: Error, torchs: Error
    ) -> VerifyResult:
        """Return the worst outcome as a result."""
        terms = problem.case.spec.terms
        return VerifyResult(
            case=problem.case,
            implementation=implementation,
            check=check,
            status=self.outcome.status,
            reason=self.outcome.reason,
            error=error,
            reference_error=torchs,
            code=Code.WRONG if self.outcome.status == FAIL else self.outcome.code,
            tolerance=problem.tolerance,
            tolerance_ulp=problem.granted,
            terms=terms.reason if terms else "",
        )


def to_error(loss: Errors | None = None, gradient: Errors | None = None) -> Error:
    """Return errors of a loss and a gradient by their public names."""
    return Error(
        value_abs=loss.absolute if loss else None,
        value_rel=loss.relative if loss else None,
        value_ulp=loss.ulp if loss else None,
        grad_ulp=gradient.ulp if gradient else None,
        grad_rel=gradient.relative if gradient else None,
    )


class Gate:
    """Judges a case's implementations with shared oracle results."""

    def __init__(
        self,
        case: Case,
        operands: Mapping[str, Tensor],
        loosened: float | None = None,
        reference: Implementation | None = None,
    ) -> None:
        values = {name: operand.detach() for name, operand in operands.items()}
        third_party = ThirdParty(reference=reference) if reference else None
        self.problem = Problem(case, values, loosened, excuses=False, third_party=third_party)

    def judge(
        self,
        name: str,
        pass_: PassName,
        loss: Tensor | None,
        *gradients: Tensor | None,
        incoming: float = 1.0,
    ) -> VerifyResult:
        """Judge a loss and, for ``forward_backward``, a training step's gradients."""
        worst = Worst()
        outcome, loss_errors = self.problem.judge_loss(loss)
        worst.add(self._as_a_whole(name, outcome, loss_errors), loss_errors, "loss: ")
        found = Worst()
        if pass_ == "forward_backward":
            trained = self.problem.case.spec.trained
            coming = self.problem.filled(incoming, trained)
            for operand, gradient in zip(trained, gradients or (None,) * len(trained), strict=True):
                outcome, errors = self.problem.judge(operand, gradient, coming)
                outcome = self._as_a_whole(name, outcome, errors)
                where = "gradient: " if len(trained) == 1 else f"{operand} gradient: "
                found.add(outcome, errors)
                worst.add(outcome, errors, where)
        error = to_error(loss_errors, found.errors)
        return worst.result(self.problem, name, CHECK, error, Error())

    def _as_a_whole(self, name: str, outcome: Outcome, errors: Errors | None) -> Outcome:
        implementation = IMPLEMENTATIONS.get(name)
        # None is a file, whose elements were judged before.
        lenient = implementation is None or implementation.torchs_own
        allowed = max(ELEMENT_ULP, self.problem.granted or 0.0)
        # n ulp of a number are at most n * eps of it.
        most = allowed * torch.finfo(self.problem.oracle.dtype).eps
        if outcome.status == FAIL and lenient and errors and errors.relative <= most:
            return Outcome(WARN, outcome.reason, Code.SAME_ERROR_AS_PYTORCH)
        return outcome
