"""Judges implementations of a case with the oracle."""

import math
from collections.abc import Iterable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from losscli.implementations.errors import SubjectError
from losscli.implementations.requests import Answer, Forward
from losscli.implementations.subject import Subject
from losscli.losses import LOSS
from losscli.losses.formulas import widened
from losscli.machine.memory import free_bytes
from losscli.runs.records import FAIL, PASS
from losscli.truth.distances import Errors, Forgives, Truth, compare, forgiving, misfit, truths_of
from losscli.truth.excuse import excused
from losscli.truth.setup import Incoming, Setup
from losscli.truth.tolerances import ELEMENT_ULP, Outcome, describe

Judged = tuple[Outcome, Errors | None]
"""An outcome, and the errors unless it is a misfit."""
ANSWERS = 2
"""How many answers of a pair are off."""


def operand_of(gradient: str) -> str:
    """Return the operand of a gradient's name in an answer."""
    return gradient.removesuffix(" gradient")


def _with_underflow(truths: Iterable[Truth], incoming: Incoming) -> Iterable[Truth]:
    """Allow a gradient 16 of the smallest steps before grad_output multiplies it: subnormals."""
    limits = torch.finfo(widened(incoming.grad_output.dtype))
    lost = 16 * incoming.largest * limits.tiny * limits.eps
    for truth in truths:
        before = torch.zeros_like(truth.value) if truth.rounding is None else truth.rounding
        yield replace(truth, rounding=before + lost)


@dataclass(frozen=True)
class Problem(Setup):
    """A case with its inputs, to judge implementations."""

    excuses: bool = True
    """Whether a result no worse than PyTorch's is a warning."""
    torchs_gradients: dict[str, Errors] = field(default_factory=dict)
    """The largest error of PyTorch's own gradients, by operand."""
    _kept: dict[tuple[str, Incoming], tuple[Truth, ...]] = field(default_factory=dict)
    _torchs: dict[Incoming, list[Answer]] = field(default_factory=dict)

    @property
    def tolerance(self) -> str:
        """The loosened tolerance, with the reason if it is the loss's, or an empty string."""
        own, granted = self.case.spec.tolerance, self.granted
        if granted is None:
            return ""
        is_own = own is not None and granted == own.factor * ELEMENT_ULP
        return f"{granted:g} ulp: {own.reason}" if own and is_own else f"{granted:g} ulp"

    @property
    def granted(self) -> float | None:
        """See :meth:`Oracle.granted`."""
        return self.oracle.granted(self.loosened)

    @cached_property
    def reference_errors(self) -> Errors:
        """The error of PyTorch's own formula."""
        return compare(self.torchs_own[0].send(Forward(self.operands)), self.value())

    @cached_property
    def branch_shares(self) -> dict[str, float]:
        """The fraction of elements on each branch of the loss."""
        counts = self.oracle.branch_counts()
        names = self.case.spec.branches(self.case.params)
        return {n: c / max(sum(counts), 1) for n, c in zip(names, counts, strict=True)}

    def misfit(self, part: str, got: Tensor | None) -> str:
        """Describe a wrong shape, dtype or device of the loss or a gradient, if there is one."""
        if part == LOSS:
            return misfit(got, self.oracle.loss_shape(), self.prediction, self.oracle.dtype)
        operand = self.operands[operand_of(part)]
        return misfit(got, operand.shape, operand, operand.dtype)

    def truths(self, part: str, incoming: Incoming | None) -> Iterable[Truth]:
        """The truth of the loss or a gradient."""
        if incoming is None or part == LOSS:
            return self.value()
        return self.gradient(operand_of(part), incoming)

    def judge(
        self,
        part: str,
        got: Tensor | None,
        incoming: Incoming | None = None,
        *,
        spared: Forgives | None = None,
    ) -> Judged:
        """Judge the loss, or a gradient by its name or its operand's; ``spared`` elements pass."""
        wrong = self.misfit(part, got)
        if wrong or got is None:
            return Outcome(FAIL, wrong), None
        name = operand_of(part)

        def truths() -> Iterable[Truth]:
            found = self.truths(part, incoming)
            if self.of_others and incoming is not None and part != LOSS:
                is_factor = 1 < incoming.largest < math.inf
                found = _with_underflow(found, incoming) if is_factor else found
            return forgiving(found, got, spared) if spared else found

        def torchs() -> Iterator[Tensor | None]:
            if incoming is None or part == LOSS:
                yield from self.formulas_losses()
            else:
                yield from (own.gradients.get(name) for own in self._torchs_answers(incoming))

        def own_errors() -> Errors:
            if incoming is None or part == LOSS:
                return self.reference_errors
            own = next(torchs())
            found = Errors() if own is None else compare(own, truths())
            known = self.torchs_gradients.get(name, found)
            self.torchs_gradients[name] = max(known, found, key=lambda e: e.ulp)
            return found

        def judge(errors: Errors) -> Outcome:
            return self.oracle.judge(name, errors, own_errors, self.granted)

        accepted = self.oracle.accepted(truths, got) if part == LOSS else truths
        errors = compare(got, accepted())
        outcome = judge(errors)
        if outcome.status == PASS:
            outcome = self.oracle.judge_as_a_whole(outcome, errors, accepted)
        if outcome.status == FAIL and self._may_be_excused:
            noisy = self.of_others
            bar = self.oracle.excuse_bar(got.dtype) if noisy else ELEMENT_ULP
            outcome = excused(outcome, got, accepted, torchs(), judge, noisy=noisy, bar=bar)
        return outcome, errors

    def judge_loss(self, loss: Tensor | None) -> Judged:
        """Judge a loss; see :meth:`judge`."""
        return self.judge(LOSS, loss)

    def scale_of(self, part: str, incoming: Incoming) -> Tensor:
        """Return the scale of errors of the loss or a gradient."""
        shape = self.oracle.loss_shape() if part == LOSS else self.operands[operand_of(part)].shape
        scale = torch.zeros(shape, dtype=torch.float64, device=self.oracle.device)
        for truth in self.truths(part, incoming):
            scale[truth.block] = truth.scale.abs()
        return scale

    def judge_pair(
        self, part: str, got: Tensor | None, other: Tensor | None, scale: Tensor
    ) -> Judged:
        """Judge the loss or a gradient against that of another answer, which must be equal.

        The oracle only gives the scale, so mistakes show that the reference and a kernel share. Two
        answers may differ by twice the tolerance of one.
        """
        wrong = self.misfit(part, got)
        if wrong or got is None or other is None or other.shape != got.shape:
            return Outcome(FAIL, wrong or "one of two results has another shape"), None
        errors = compare(got, truths_of(other, scale))
        share = replace(errors, ulp=errors.ulp / ANSWERS, relative=errors.relative / ANSWERS)
        outcome = self.oracle.judge(operand_of(part), share, Errors, self.granted)
        if outcome.status != FAIL:
            return Outcome(PASS), errors
        reason = f"{describe(errors)} from each other; allowed: {ANSWERS} times the error of one"
        return Outcome(FAIL, reason), errors

    def judge_sum_of_rows(
        self, name: str, gradient: Tensor | None, incoming: Incoming, dimension: int
    ) -> Judged:
        """Judge that each row of a gradient sums to zero, as that of a broadcast operand."""
        operand = self.operands[name]
        wrong = self.misfit(name, gradient)
        if wrong or gradient is None:
            return Outcome(FAIL, wrong), None
        least = torch.finfo(operand.dtype).tiny  # below it the spacing is constant
        scale = self.scale_of(name, incoming).clamp(min=least).sum(dimension)
        total = gradient.double().sum(dimension)
        # In float64, so that the sum is not rounded; measured in the gradient's dtype.
        errors = compare(total, truths_of(torch.zeros_like(total), scale))
        share = torch.finfo(torch.float64).eps / torch.finfo(operand.dtype).eps
        errors = replace(errors, ulp=errors.ulp * share)
        outcome = self.oracle.judge_sums(errors, operand.dtype, self.granted)
        return outcome if outcome.status == FAIL else Outcome(PASS), errors

    @property
    def _may_be_excused(self) -> bool:
        # PyTorch's formulas need 24 tensors of at least float32: temporaries and gradients, twice.
        needed = 24 * self.case.temporary_elements * max(self.prediction.element_size(), 4)
        return self.excuses and needed <= free_bytes(self.case.device)

    @property
    def torchs_own(self) -> list[Subject]:
        """PyTorch's own formulas."""
        return self.oracle.formulas(third_party=self.of_others)

    def formulas_losses(self) -> Iterator[Tensor]:
        """Yield the losses of PyTorch's and textbook formulas that accept the operands."""
        for own in self.torchs_own:
            with suppress(SubjectError):
                yield own.send(Forward(self.operands))

    def _torchs_answers(self, incoming: Incoming) -> Iterator[Answer]:
        if not self.oracle.keeps_formulas:
            return self._formulas_answers(incoming)
        if incoming not in self._torchs:
            self._torchs[incoming] = [*self._formulas_answers(incoming)]
        return iter(self._torchs[incoming])

    def _formulas_answers(self, incoming: Incoming) -> Iterator[Answer]:
        for number, own in enumerate(self.torchs_own):
            # The reference accepts all operands; a textbook formula may not.
            with suppress(SubjectError) if number else nullcontext():
                yield own.send(self.call(incoming))
        if self.of_others and self.case.item_bytes == 2 and self.case.reduction != "none":
            # A kernel may round gradients before it multiplies them by grad_output.
            answer = self.torchs_own[0].send(self.call(self.filled(1.0, incoming.wrt)))
            scaled = {
                name: None if each is None else (each * incoming.grad_output).to(each.dtype)
                for name, each in answer.gradients.items()
            }
            yield Answer(answer.loss, scaled)

    @cached_property
    def _whole_value(self) -> tuple[Truth, ...]:
        return tuple(self.oracle.value())

    def value(self) -> Iterable[Truth]:
        """The truth of the loss; recomputed each time if it is large."""
        small = self.case.reduction != "none" or self.oracle.keeps_truths
        return self._whole_value if small else self.oracle.value()

    def gradient(self, name: str, incoming: Incoming) -> Iterable[Truth]:
        """The truth of a gradient; recomputed each time if it is large."""
        if not self.oracle.keeps_truths:
            return self.oracle.gradient(name, incoming.grad_output)
        key = (name, incoming)
        if key not in self._kept:
            names = incoming.wrt if name in incoming.wrt else (name,)
            found = self.oracle.gradients(names, incoming.grad_output)
            self._kept.update({(n, incoming): tuple(truths) for n, truths in found.items()})
        return self._kept[key]
