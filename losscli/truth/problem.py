"""A case with its inputs and oracle, shared by implementations and checks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType

import msgspec
import torch
from torch import Tensor

from losscli.cases.case import Case, grad_output_values
from losscli.implementations import Implementation
from losscli.implementations.builtin import TORCHS_OWN
from losscli.implementations.errors import SubjectError
from losscli.implementations.local import Operands
from losscli.implementations.requests import Answer, Call, Forward
from losscli.implementations.subject import Subject
from losscli.losses import ELEMENT, HIDDEN_STATE, LOSS, MODEL, ROW, Shape, Unit
from losscli.machine.memory import free_bytes
from losscli.runs.records import FAIL, PASS
from losscli.truth.distances import Errors, Truth, compare, misfit
from losscli.truth.excuse import excused
from losscli.truth.fingerprint import Mark
from losscli.truth.inputs import make_grad_output, make_inputs
from losscli.truth.linear_oracle import LinearOracle
from losscli.truth.model import ModelOracle
from losscli.truth.oracle import Oracle, Truths
from losscli.truth.row_oracle import RowOracle
from losscli.truth.tolerances import ELEMENT_ULP, Outcome

ORACLES: Mapping[Unit, type[Oracle]] = {
    ELEMENT: Oracle,
    ROW: RowOracle,
    HIDDEN_STATE: LinearOracle,
    MODEL: ModelOracle,
}
_FORMULAS_TENSORS = 24
"""Input-sized tensors, in at least float32, that must fit before PyTorch's formulas run: their
temporaries and gradients, twice."""
Beside = Mapping[str, tuple[str, ...]]
"""The run's losses per implementation; others would have to be built for a check."""
_LARGEST_SCALE = 2.0**15
"""The largest power of two in float16."""
_SMALL = -3 / 1024
"""A factor that makes gradients below 1e-6 for a mean of some thousand elements."""


def operand_of(gradient: str) -> str:
    """Return the operand whose gradient a part of an answer is."""
    return gradient.removesuffix(" gradient")


@dataclass(frozen=True, eq=False)
class Incoming:
    """A grad_output and the operands to differentiate. Hashed by identity."""

    name: str
    wrt: tuple[str, ...]
    grad_output: Tensor
    """In the shape of the loss."""


@dataclass(frozen=True)
class ThirdParty:
    """Facts about a judged third-party kernel."""

    lacking: tuple[str, ...] = ()
    """Operands without a gradient, as in PyTorch's own function."""
    reference: Implementation | None = None
    """What computes the truth of a Model."""
    labels: bool = False
    """Whether it is judged with labels 0 and 1 alone, where a target may lie between them."""


@dataclass(frozen=True)
class Problem:
    """A case with inputs on which implementations are judged."""

    case: Case
    operands: Operands
    loosened: float | None = None
    """ULP that the config grants this case."""
    excuses: bool = True
    """Whether a result no worse than PyTorch's is a warning."""
    third_party: ThirdParty | None = None
    """Set for third-party kernels, which may be as wrong as a textbook formula."""
    beside: Beside = field(default_factory=dict)
    """Other losses that a check may call in between."""
    torchs_gradients: dict[str, Errors] = field(default_factory=dict)
    """The largest error of each of a Model's own gradients, by operand."""
    _kept: dict[tuple[str, Incoming], tuple[Truth, ...]] = field(default_factory=dict)
    _variants: dict[str, Problem] = field(default_factory=dict)
    _used: dict[str, Problem] = field(default_factory=dict)
    """Variants requested since ``spoiled`` last checked."""
    _marks: dict[str, Mark] = field(default_factory=dict)
    _torchs: dict[Incoming, list[Answer]] = field(default_factory=dict)
    _filled: dict[tuple[float, tuple[str, ...]], Incoming] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        case: Case,
        loosened: float | None = None,
        beside: Beside = MappingProxyType({}),
        *,
        third_party: ThirdParty | None = None,
    ) -> Problem:
        """Make the inputs of a case."""
        known = third_party or ThirdParty()
        operands = make_inputs(case, known.reference, labels=known.labels)
        return cls(case, operands, loosened, third_party=third_party, beside=beside)

    @property
    def of_others(self) -> bool:
        """Whether a third-party kernel is judged."""
        return self.third_party is not None

    @property
    def prediction(self) -> Tensor:
        """The first operand."""
        return next(iter(self.operands.values()))

    @property
    def wrt(self) -> tuple[str, ...]:
        """The names of the operands to differentiate."""
        lacking = self.third_party.lacking if self.third_party else ()
        return tuple(name for name in self.case.spec.differentiable if name not in lacking)

    @property
    def refused(self) -> bool:
        """Whether the public function rejects these operand shapes."""
        shapes = [tuple(operand.shape) for operand in self.operands.values()]
        return bool(self.case.spec.refused(shapes))

    def like(self, changed: Operands, case: Case | None = None) -> Problem:
        """Return a problem with some operands changed, of the same case by default."""
        operands = {**self.operands, **changed}
        return Problem(case or self.case, operands, self.loosened, third_party=self.third_party)

    def _of(self, case: Case) -> Problem:
        return Problem.of(case, self.loosened, third_party=self.third_party)

    @property
    def chooses_order(self) -> bool:
        """Whether sums may have another order on another stream or in a capture."""
        return self.case.spec.chooses_order and self.case.device != "cpu"

    def reshaped(self, shape: Shape, target_shape: Shape | None = None) -> Problem:
        """Return the problem with other shapes; see :meth:`Case.reshaped`."""
        return self._of(self.case.reshaped(shape, target_shape))

    @property
    def tolerance(self) -> str:
        """The loosened tolerance of config or loss, with the loss's reason, or an empty string."""
        own, granted = self.case.spec.tolerance, self.granted
        if granted is None:
            return ""
        is_own = own is not None and granted == own.factor * ELEMENT_ULP
        return f"{granted:g} ulp: {own.reason}" if own and is_own else f"{granted:g} ulp"

    @property
    def terms(self) -> str:
        """The reason that errors are relative to the largest terms, or an empty string."""
        own = self.case.spec.terms
        return own.reason if own else ""

    @property
    def granted(self) -> float | None:
        """ULP that the config grants this case by name, or that belong to its loss."""
        return self.oracle.granted(self.loosened)

    @cached_property
    def oracle(self) -> Oracle:
        """What is right, of the operands' contents at the time of each question."""
        return self._oracle()

    @cached_property
    def _constant(self) -> Oracle:
        """The oracle of the operands' current contents, whose results are kept."""
        return self._oracle(constant=True)

    def _oracle(self, *, constant: bool = False) -> Oracle:
        reference = self.third_party.reference if self.third_party else None
        return ORACLES[self.case.spec.unit](self.case, self.operands, constant, reference)

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

    def sibling(self) -> Problem:
        """Return the same case with other contents."""
        return self._of(msgspec.structs.replace(self.case, seed=self.case.seed + 1))

    def variant(self, name: str, make: Callable[[], Problem]) -> Problem:
        """Return a problem derived from this one, made once."""
        if name not in self._variants:
            self._variants[name] = make()
            if self._marks:
                self._variants[name].mark()
        self._used[name] = self._variants[name]
        return self._variants[name]

    def mark(self) -> None:
        """Mark the operands' current contents."""
        for name, operand in self.operands.items():
            self._marks[name] = Mark.of(operand)

    def spoiled(self, *, used: bool = False) -> str:
        """Return an operand, of this or a (``used``) variant, that changed since ``mark``."""
        variants = list((self._used if used else self._variants).values())
        self._used.clear()
        for name, mark in self._marks.items():
            if not mark.is_of(self.operands[name]):
                return name
        return next(filter(None, (each.spoiled(used=used) for each in variants)), "")

    def call(
        self, incoming: Incoming, operands: Operands | None = None, contents: Operands | None = None
    ) -> Call:
        """Return the call for the loss and the gradients of a grad_output; see :class:`Call`."""
        return Call(operands or self.operands, incoming.wrt, incoming.grad_output, contents)

    def copies(self) -> Operands:
        """Return copies of the operands, which a mistake may overwrite."""
        return {name: each.clone() for name, each in self.operands.items()}

    @cached_property
    def ones(self) -> Tensor:
        """A grad_output of ones."""
        one = torch.ones((), dtype=self.oracle.dtype, device=self.oracle.device)
        return one.expand(self.oracle.loss_shape())

    def filled(self, value: float, wrt: tuple[str, ...] = ()) -> Incoming:
        """Return a constant grad_output, made once, for ``wrt`` or else the prediction."""
        wrt = wrt or self.wrt[:1]
        key = value, wrt
        if key not in self._filled:
            grad_output = self.ones.new_full((), value).expand(self.oracle.loss_shape())
            if not self.oracle.takes_expanded:
                grad_output = grad_output.contiguous()
            self._filled[key] = Incoming(f"{value:g}", wrt, grad_output)
        return self._filled[key]

    @cached_property
    def alone(self) -> tuple[Incoming, ...]:
        """A grad_output of 1 for each operand alone."""
        return tuple(self.filled(1.0, (name,)) for name in self.wrt)

    @cached_property
    def usual(self) -> Incoming:
        """The usual grad_output: the case's first number; normal values if unreduced and 1."""
        value = grad_output_values(self.case.grad_output)[0]
        if self.case.reduction == "none" and value == 1:
            return Incoming("of normal values", self.wrt, make_grad_output(self.case))
        return self.filled(value, self.wrt)

    @cached_property
    def others(self) -> tuple[Incoming, ...]:
        """Other grad_outputs; the last is for all operands.

        32768, a usual loss scale of mixed precision, is for the prediction only, as in training. A
        small one reveals gradients that are treated as zero. In float16, where these underflow and
        sums times 32768 overflow, it is -3, and about N for a mean, whose gradient underflows at 1.
        """
        if self.case.reduction == "none":
            return (self.usual,)
        factors = [(_LARGEST_SCALE, self.wrt[:1]), (_SMALL, self.wrt)]
        if self.oracle.dtype == torch.float16:
            factors = [(-3.0, self.wrt)]
            if self.case.reduction == "mean":
                power = int(math.log2(max(self.oracle.unreduced_shape.numel(), 1)))
                factors.append((min(2.0**power, _LARGEST_SCALE), self.wrt))
        return tuple(
            Incoming(f"{factor:g}", wrt, torch.full_like(self.ones, factor))
            for factor, wrt in factors
        )

    def judge(
        self, part: str, got: Tensor | None, incoming: Incoming
    ) -> tuple[Outcome, Errors | None]:
        """Judge a part of an answer by its name."""
        if part == LOSS:
            return self.judge_loss(got)
        return self.judge_gradient(operand_of(part), got, incoming)

    def judge_loss(self, loss: Tensor | None) -> tuple[Outcome, Errors | None]:
        """Judge a loss; there are no errors if its shape, dtype or device mismatches."""
        wrong = misfit(loss, self.oracle.loss_shape(), self.prediction, self.oracle.dtype)
        if wrong or loss is None:
            return Outcome(FAIL, wrong), None

        def judge(errors: Errors) -> Outcome:
            return self.oracle.judge_loss(errors, lambda: self.reference_errors, self.granted)

        truths = self.oracle.accepted(self.value, loss)
        return self._judge(loss, truths, judge, self.formulas_losses())

    def judge_gradient(
        self, name: str, gradient: Tensor | None, incoming: Incoming, *, any_for_nan: bool = False
    ) -> tuple[Outcome, Errors | None]:
        """Judge an operand's gradient; ``any_for_nan`` accepts any value where the truth is NaN."""
        operand = self.operands[name]
        wrong = misfit(gradient, operand.shape, operand, operand.dtype)
        if wrong or gradient is None:
            return Outcome(FAIL, wrong), None

        def truths() -> Iterator[Truth]:
            for truth in self.gradient(name, incoming):
                if any_for_nan:
                    value = truth.value
                    value = torch.where(value.isnan(), gradient[truth.block], value)
                    truth = replace(truth, value=value)
                yield truth

        def own_errors() -> Errors:
            own = next(self._torchs_answers(incoming)).gradients[name]
            torchs = Errors() if own is None else compare(own, truths())
            known = self.torchs_gradients.get(name, torchs)
            self.torchs_gradients[name] = max(known, torchs, key=lambda e: e.ulp)
            return torchs

        def judge(errors: Errors) -> Outcome:
            return self.oracle.judge_gradient(name, errors, own_errors, self.granted)

        def torchs() -> Iterator[Tensor | None]:
            yield from (own.gradients.get(name) for own in self._torchs_answers(incoming))

        return self._judge(gradient, truths, judge, torchs())

    def _judge(
        self,
        result: Tensor,
        truths: Truths,
        judge: Callable[[Errors], Outcome],
        torchs: Iterable[Tensor | None],
    ) -> tuple[Outcome, Errors]:
        """Judge a result; a failure is a warning where PyTorch's own formulas are as wrong."""
        errors = compare(result, truths())
        outcome = judge(errors)
        if outcome.status == PASS:
            outcome = self.oracle.judge_as_a_whole(outcome, errors, truths)
        if outcome.status == FAIL and self._may_be_excused:
            noisy = self.of_others
            bar = self.oracle.excuse_bar(result.dtype) if noisy else ELEMENT_ULP
            outcome = excused(outcome, result, truths, torchs, judge, noisy=noisy, bar=bar)
        return outcome, errors

    @property
    def _may_be_excused(self) -> bool:
        if not self.excuses:
            return False
        item = max(self.prediction.element_size(), 4)
        needed = _FORMULAS_TENSORS * self.case.temporary_elements * item
        return needed <= free_bytes(self.case.device)

    @property
    def torchs_own(self) -> list[Subject]:
        """PyTorch's own formulas, each of which may be wrong."""
        return self.oracle.formulas(third_party=self.of_others)

    def formulas_losses(self) -> Iterator[Tensor]:
        """Yield the losses of PyTorch's and textbook formulas that accept the operands."""
        for own in self.torchs_own:
            with suppress(SubjectError):
                yield own.send(Forward(self.operands))

    def _torchs_answers(self, incoming: Incoming) -> Iterator[Answer]:
        """Yield the results of PyTorch's formulas; those of a large case are recomputed."""
        if not self.oracle.keeps_formulas:
            return self._formulas_answers(incoming)
        if incoming not in self._torchs:
            self._torchs[incoming] = [*self._formulas_answers(incoming)]
        return iter(self._torchs[incoming])

    def _formulas_answers(self, incoming: Incoming) -> Iterator[Answer]:
        for number, own in enumerate(self.torchs_own):
            # The reference accepts all operands; a textbook formula may not.
            with suppress(SubjectError) if number >= len(TORCHS_OWN) else nullcontext():
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
        return tuple(self._constant.value())

    def value(self) -> Iterable[Truth]:
        """The truth of the loss; streamed again each time where it is large."""
        small = self.case.reduction != "none" or self.oracle.keeps_truths
        return self._whole_value if small else self.oracle.value()

    def gradient(self, name: str, incoming: Incoming) -> Iterable[Truth]:
        """The truth of a gradient; streamed again each time where it is large."""
        if not self.oracle.keeps_truths:
            return self.oracle.gradient(name, incoming.grad_output)
        key = (name, incoming)
        if key not in self._kept:
            names = incoming.wrt if name in incoming.wrt else (name,)
            found = self._constant.gradients(names, incoming.grad_output)
            self._kept.update({(each, incoming): truths for each, truths in found.items()})
        return self._kept[key]
