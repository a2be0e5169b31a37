"""The gate before and after a measurement: no wrong implementation gets a time."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from losscli.axes import PassName
from losscli.cases import Case
from losscli.runs.records import VerifyResult
from losscli.truth.problem import Problem
from losscli.truth.worst import Worst, to_error

CHECK = "gate"


class Gate:
    """Judges the implementations of one case, which share the oracle's results."""

    def __init__(
        self, case: Case, operands: Mapping[str, Tensor], loosened: float | None = None
    ) -> None:
        """``loosened``: ULP that the config grants this case by name."""
        values = {name: operand.detach() for name, operand in operands.items()}
        self.problem = Problem(case, values, loosened, excuses=False)

    def judge(
        self,
        name: str,
        pass_: PassName,
        loss: Tensor | None,
        gradient: Tensor | None = None,
        incoming: float = 1.0,
    ) -> VerifyResult:
        """Judge what an implementation called ``name`` computed.

        Args:
            name: of the implementation.
            pass_: ``forward``, or ``forward_backward``, where ``gradient`` is judged as well.
            loss: the loss.
            gradient: that of the prediction.
            incoming: the number that came in for it, or each element of what did.
        """
        worst = Worst()
        verdict, loss_errors = self.problem.judge_loss(loss)
        worst.add(verdict, loss_errors, "loss: ")
        gradient_errors = None
        if pass_ == "forward_backward":
            verdict, gradient_errors = self.problem.judge_gradient(
                self.problem.wrt[0], gradient, self.problem.filled(incoming)
            )
            worst.add(verdict, gradient_errors, "gradient: ")
        return worst.result(self.problem, name, CHECK, to_error(loss_errors, gradient_errors))
