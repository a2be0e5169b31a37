"""The gate around a measurement: a wrong implementation gets no time.

PyTorch's functions lose digits of some elements, such as a logit that fits its label or a small
gradient of log-cosh. They must be timed all the same, as the baseline. So if the norm of the error
is within an element's allowed ULP, ``functional`` gets a warning instead of a failure.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from losscli.cases.axes import PassName
from losscli.cases.case import Case
from losscli.implementations import IMPLEMENTATIONS, Implementation
from losscli.reasons import Code
from losscli.runs.records import FAIL, WARN, VerifyResult
from losscli.truth.distances import Errors
from losscli.truth.problem import Problem, ThirdParty
from losscli.truth.tolerances import ELEMENT_ULP, Outcome
from losscli.truth.worst import Worst, to_error

CHECK = "gate"


class Gate:
    """Judges a case's implementations with shared oracle results."""

    def __init__(
        self,
        case: Case,
        operands: Mapping[str, Tensor],
        loosened: float | None = None,
        reference: Implementation | None = None,
    ) -> None:
        """Take operands, the config's ``loosened`` ULP, and a Model's reference."""
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
                outcome, errors = self.problem.judge_gradient(operand, gradient, coming)
                outcome = self._as_a_whole(name, outcome, errors)
                where = "gradient: " if len(trained) == 1 else f"{operand} gradient: "
                found.add(outcome, errors)
                worst.add(outcome, errors, where)
        return worst.result(self.problem, name, CHECK, to_error(loss_errors, found.errors))

    def _as_a_whole(self, name: str, outcome: Outcome, errors: Errors | None) -> Outcome:
        """Turn a failure of single elements into a warning where they do not matter."""
        implementation = IMPLEMENTATIONS.get(name)
        if outcome.status != FAIL or errors is None:
            return outcome
        if implementation is not None and not implementation.torchs_own:
            return outcome  # of files the elements were judged before, beside PyTorch's formulas
        allowed = max(ELEMENT_ULP, self.problem.granted or 0.0)
        # n ulp of a number are at most n * eps of it.
        if not errors.relative <= allowed * torch.finfo(self.problem.oracle.dtype).eps:
            return outcome
        return Outcome(WARN, outcome.reason, Code.NO_WORSE_THAN_TORCH)
