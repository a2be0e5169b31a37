"""The truth of a ``Model``: its reference in float64, in a separate worker.

A tensor passes if every element's error is at most the largest of

- 4 ULP (see ``tolerances.py``) of the tensor's largest truth, because cancelling terms are unknown;
- 4 times the reference's own largest error in the candidate's dtype;
- in float64, what the reference's roundings and sums may lose;
- for a result of several elements, what a tiled sum may lose.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, cast

import torch
from msgspec import structs
from torch import Tensor

from losscli.cases.model_case import ModelCase
from losscli.errors import LosscliError
from losscli.implementations import Implementation
from losscli.implementations.errors import SubjectError
from losscli.implementations.local import Gradients, Operands, R
from losscli.implementations.requests import Call, Forward, Request, SecondDerivatives
from losscli.implementations.subject import Subject, bind, workers
from losscli.losses import LOSS
from losscli.reasons import Code
from losscli.truth.blocks import blocks_of
from losscli.truth.distances import Errors, Truth, forgiving, truths_of
from losscli.truth.oracle import Oracle, OwnErrors, Truths, wide
from losscli.truth.tolerances import Outcome, judge_model


class WrongReferenceError(LosscliError):
    """A reference does not run, or cannot be the truth."""

    code: Code = Code.BAD_REFERENCE


@dataclass(frozen=True)
class Reference:
    """The reference of a case as a subject; its failures raise WrongReferenceError."""

    case: ModelCase
    implementation: Implementation

    def send(self, request: Request[R]) -> R:
        """Send a request with copied operands."""
        operands: Operands | None = getattr(request, "operands", None)
        if operands is not None:  # which may be in its worker already, for timing
            copies = {name: each.clone() for name, each in operands.items()}
            request = structs.replace(request, operands=copies)
        with self._blamed():
            return bind(self.implementation, self.case).send(request)

    def ask(self, request: Request[R]) -> R:
        """Send a request to the worker itself."""
        with self._blamed():
            return workers.of(self.implementation, self.case.device).ask(request, case=None)

    def wrong(self, text: str) -> WrongReferenceError:
        """Return the error for a failure."""
        return WrongReferenceError(f"the reference {self.case.model} {text}")

    @contextmanager
    def _blamed(self) -> Iterator[None]:
        try:
            yield
        except SubjectError as error:
            of_gradient = error.code == Code.NO_GRADIENT
            told = f"cannot be differentiated: it {error}" if of_gradient else str(error)
            raise self.wrong(told) from None


@dataclass(frozen=True)
class ModelOracle(Oracle):
    """The reference in float64 on the candidate's exact values."""

    case: ModelCase
    takes_expanded: ClassVar[bool] = False  # whether it takes them, a check of layouts asks

    @property
    def keeps_formulas(self) -> bool:
        return True

    def formulas(self, *, third_party: bool) -> list[Subject]:
        return [cast("Subject", Reference(self.case, self._model))]

    def accepted(self, truths: Truths, loss: Tensor) -> Truths:
        return partial(take_infinity_for_nan, truths, loss)

    def judge(self, part: str, errors: Errors, own: OwnErrors, granted: float | None) -> Outcome:
        if part == LOSS:
            return judge_model(errors, own(), self.dtype, self.case.terms)
        return judge_model(errors, own(), self.operands[part].dtype, 1)

    @property
    def _model(self) -> Implementation:
        assert self.reference
        return self.reference

    @property
    def dtype(self) -> torch.dtype:
        found: torch.dtype = getattr(torch, self.case.loss_dtype)
        return found

    @property
    def unreduced_shape(self) -> torch.Size:
        return torch.Size(self.case.unreduced_shape)

    def value(self) -> Iterator[Truth]:
        yield from truths_at_largest(self.exact_result(), self.dtype)

    def exact_result(self) -> Tensor:
        """Return the result in float64."""
        return self.exact.send(Forward(wide(self.operands)))

    def gradients(self, names: Sequence[str], grad_output: Tensor) -> dict[str, Iterable[Truth]]:
        call = Call(wide(self.operands), tuple(names), grad_output.double())
        truths = dict[str, Iterable[Truth]]()
        for name, found in self.exact.send(call).gradients.items():
            operand = self.operands[name]
            known = torch.zeros_like(operand, dtype=torch.float64) if found is None else found
            truths[name] = truths_at_largest(known, operand.dtype)
        return truths

    def curvature(self, asked: SecondDerivatives) -> Gradients:
        """Return second derivatives in float64."""
        operands, toward = wide(asked.operands), wide(asked.toward)
        return self.exact.send(SecondDerivatives(operands, asked.grad_output.double(), toward))

    @property
    def exact(self) -> Reference:
        """The reference in float64."""
        return Reference(self.case.of_dtype("float64"), self._model)


def take_infinity_for_nan(truths: Truths, result: Tensor) -> Iterator[Truth]:
    """Return truths that accept infinity for NaN: formulas differ in infinity - infinity."""
    return forgiving(truths(), result, lambda truth, got: truth.value.isnan() & got.isinf())


def truths_at_largest(value: Tensor, dtype: torch.dtype) -> Iterator[Truth]:
    """Return truths whose errors are relative to the largest element within range."""
    largest = value.new_zeros(())
    for block in blocks_of(value):
        inside = value[block].abs().where(value[block].to(dtype).isfinite(), 0.0)
        largest = largest.maximum(inside.max()) if inside.numel() else largest
    return truths_of(value, largest.expand(value.shape))
