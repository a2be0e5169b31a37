"""The gate before and after a measurement: no wrong implementation is shown as fast."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from losscli.cases import Case
from losscli.implementations import Implementation
from losscli.results import FAIL, VerifyResult
from losscli.verify.checks.check import Worst, value_error
from losscli.verify.problem import Problem
from losscli.verify.subject import Subject, SubjectError

CHECK = "gate"


class Gate:
    """Judges implementations of one case; what the oracle found is shared between them."""

    def __init__(
        self, case: Case, input: Tensor, target: Tensor, loosened: float | None = None
    ) -> None:
        """``loosened``: ULP that the config grants this case by name."""
        self.problem = Problem(case, input.detach(), target.detach(), loosened)

    def check(self, implementation: Implementation, pass_: str) -> VerifyResult:
        """Run an implementation once and judge it; one that raises fails, with what it said."""
        input, target = self.problem.input, self.problem.target
        try:
            subject = Subject.bind(implementation, self.problem.case)
            if pass_ == "forward":
                return self.judge(subject.name, pass_, subject.loss(input, target))
            loss, gradients = subject.gradients(input, target, ("input",), self._ones())
        except SubjectError as error:
            return VerifyResult(
                self.problem.case, implementation.name, CHECK, FAIL, reason=str(error)
            )
        return self.judge(subject.name, pass_, loss, gradients["input"])

    def judge(
        self, name: str, pass_: str, loss: Tensor | None, gradient: Tensor | None = None
    ) -> VerifyResult:
        """Judge what an implementation called ``name`` computed.

        Args:
            name: of the implementation.
            pass_: ``forward``, or ``forward_backward``, where ``gradient`` is judged as well.
            loss: the loss.
            gradient: the gradient of the input for an incoming gradient of 1 (ones).
        """
        worst = Worst()
        verdict, errors = self.problem.judge_loss(loss)
        worst.add(verdict, errors, "loss: ")
        error = value_error(errors)
        if pass_ == "forward_backward":
            verdict, errors = self.problem.judge_gradient("input", gradient, self._ones())
            worst.add(verdict, errors, "gradient: ")
            error = replace(error, grad_ulp=errors.ulp, grad_rel=errors.relative)
        return VerifyResult(
            self.problem.case,
            name,
            CHECK,
            worst.verdict.status,
            worst.verdict.reason,
            error,
            tolerance=self.problem.tolerance,
        )

    def _ones(self) -> Tensor:
        """Return the incoming gradient, in the shape of the loss."""
        oracle = self.problem.oracle
        one = torch.ones((), dtype=oracle.dtype, device=self.problem.input.device)
        return one.expand(oracle.loss_shape())


def check(
    case: Case, implementation: Implementation, pass_: str, input: Tensor, target: Tensor
) -> VerifyResult:
    """Judge one implementation of a case."""
    return Gate(case, input, target).check(implementation, pass_)
