"""One case with its inputs and what is known of the truth, shared by all that it is put to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from losscli.cases import Case
from losscli.implementations import find_implementation
from losscli.oracle import Operand, Oracle, Truth
from losscli.results import FAIL
from losscli.verify.errors import Errors, compare
from losscli.verify.subject import Subject, misfit
from losscli.verify.tolerances import VALUE_ULP, Verdict, judge_elements, judge_sums, judge_value


@dataclass(frozen=True)
class Problem:
    """A case that implementations are judged on."""

    case: Case
    input: Tensor
    target: Tensor
    loosened: float | None = None
    """ULP that the config grants this case by name."""

    @property
    def tolerance(self) -> str:
        """The tolerance that the config loosened, for the record; empty where none is."""
        return "" if self.loosened is None else f"{self.loosened:g} ulp"

    @cached_property
    def oracle(self) -> Oracle:
        """The truth."""
        return Oracle(self.case, self.input, self.target)

    @cached_property
    def reference_errors(self) -> Errors:
        """The error of PyTorch's own formula."""
        subject = Subject.bind(find_implementation("reference"), self.case)
        return compare(subject.loss(self.input, self.target), self._value())

    def judge_loss(self, loss: Tensor | None) -> tuple[Verdict, Errors | None]:
        """Judge a loss; there are no errors of what has the wrong shape, dtype or device."""
        shape, dtype = self.oracle.loss_shape(), self.oracle.dtype
        wrong = misfit(loss, shape, self.input, dtype)
        if wrong or loss is None:
            return Verdict(FAIL, wrong), None
        errors = compare(loss, self._value())
        if self.case.reduction == "none":
            return judge_elements(errors, self.loosened), errors
        # PyTorch's own error is worth a run only where it can change the verdict.
        reference = self.reference_errors if errors.ulp > VALUE_ULP else Errors()
        return judge_value(errors, reference, dtype, self.loosened), errors

    def judge_gradient(
        self, name: Operand, gradient: Tensor | None, grad_output: Tensor
    ) -> tuple[Verdict, Errors | None]:
        """Judge the gradient of an operand for an incoming gradient."""
        operand = self.oracle.operand(name)
        wrong = misfit(gradient, operand.shape, operand, operand.dtype)
        if wrong or gradient is None:
            return Verdict(FAIL, wrong), None
        errors = compare(gradient, self.oracle.gradient(name, grad_output))
        if operand.shape == self.oracle.shape:
            return judge_elements(errors, self.loosened), errors
        return judge_sums(errors, operand.dtype, self.loosened), errors

    @cached_property
    def _scalar(self) -> tuple[Truth, ...]:
        """The truth of a reduced loss."""
        return tuple(self.oracle.value())

    def _value(self) -> Iterable[Truth]:
        """The truth of the loss; streamed again each time where it has a shape."""
        return self.oracle.value() if self.case.reduction == "none" else self._scalar
