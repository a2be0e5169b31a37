"""What a check is, and the tally of what it finds."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from math import isnan
from typing import Any

from msgspec.structs import replace
from torch import Tensor

from losscli.cases.axes import PassName
from losscli.cases.case import Case
from losscli.implementations import Implementation
from losscli.implementations.requests import Answer, Forward
from losscli.implementations.subject import Subject
from losscli.losses import ELEMENT, HIDDEN_STATE, LOSS, MODEL, ROW, Spec, Unit
from losscli.reasons import Code, Facet, Reason
from losscli.runs.measurements import Error
from losscli.runs.records import FAIL, VerifyResult
from losscli.truth.distances import Errors
from losscli.truth.gate import Worst, to_error
from losscli.truth.problem import Judged, Problem
from losscli.truth.setup import Incoming
from losscli.truth.tolerances import Outcome
from losscli.verify.geometry.geometry import Variants, usual_and_other
from losscli.verify.needed_memory import Held

COPIES = "each rank copies its shard out of whole operands"
NO_ORDER = "collectives have no order between streams and graphs"
UNIT_LOSSES = {ELEMENT: "elementwise", ROW: "row-wise", HIDDEN_STATE: "fused linear"}
Limits = Callable[[str, Errors | None], bool]
Judge = Callable[[Problem, Subject, "Tally"], Iterator[VerifyResult] | None]


def usual(problem: Problem) -> tuple[Incoming]:
    """Return the usual grad_output alone."""
    return (problem.usual,)


class Tally(Worst):
    """The worst of what a check finds, with the names of all variants that failed."""

    def __init__(self, *, limits: Limits = lambda variant, errors: False) -> None:
        super().__init__()
        self._losses, self._gradients = Worst(), Worst()
        self._failed: dict[str, None] = {}
        self._limits = limits
        self.reference_error = Error()
        """PyTorch's own error, if the check measures it."""
        self.interleaved: tuple[str, ...] = ()
        """The losses that the check called in between."""
        self.note = ""
        """The result's reason if there is no other."""
        self.first = False
        """Whether to report the first failure, not the worst."""
        self.several: Callable[[list[str]], str] = lambda failed: f"with {'; '.join(failed)}"
        """Describes several failed variants."""
        self.any_for_nan = False
        """Whether any gradient of a variant fits NaN."""

    def count(self, variant: str, part: str, judged: Judged, what: str = "") -> None:
        """Keep the judgement of a variant's part, whose error the result shows."""
        outcome, errors = judged
        self.measure(part, outcome, errors)
        # Authors define the mean of nothing: a number where the loss is NaN is a limitation.
        of_nothing = errors is not None and not errors.index and isnan(errors.expected)
        limits = self._limits(variant, errors) or of_nothing
        if not (self.first and self._failed):
            self.add(outcome, errors, f"{variant}, {what or part}: ", limits=limits)
        if outcome.status == FAIL:
            self._failed[variant] = None
            self.only_limits = self.only_limits and limits

    def measure(self, part: str, outcome: Outcome, errors: Errors | None) -> None:
        """Keep the error of the loss or a gradient for the result."""
        (self._losses if part == LOSS else self._gradients).add(outcome, errors)

    def judge_part(
        self, problem: Problem, incoming: Incoming, part: str, got: Tensor | None, where: str
    ) -> None:
        """Judge a part of an answer by the oracle."""
        self.add(*problem.judge(part, got, incoming), f"{where}, {part}: ")

    def judge_answer(
        self, problem: Problem, incoming: Incoming, answer: Answer, where: str, *, loss: bool = True
    ) -> None:
        """Judge the gradients of an answer by the oracle, and the loss if it counts."""
        for part, got in answer.items().items():
            if loss or part != LOSS:
                self.judge_part(problem, incoming, part, got, where)

    def judge_variant(
        self, name: str, problem: Problem, incoming: Incoming, answer: Answer, named: bool = False
    ) -> None:
        """Judge and count all parts of a variant; ``named``: with the name of the grad_output."""
        for part, got in answer.items().items():
            of = f" for {incoming.name}" if named and part != LOSS else ""
            spares = self.any_for_nan and part != LOSS
            spared = (lambda truth, _: truth.value.isnan()) if spares else None
            self.count(name, part + of, problem.judge(part, got, incoming, spared=spared))

    def judge_plain(self, variant: str, problem: Problem, subject: Subject) -> None:
        """Judge a variant's loss where no gradient is wanted: another kernel may run."""
        loss = subject.send(Forward(problem.operands))
        self.count(variant, LOSS, problem.judge_loss(loss), "loss without a gradient")

    def judge_variants(
        self,
        problem: Problem,
        subject: Subject,
        variants: Variants,
        incoming: Callable[[Problem], Sequence[Incoming]] = usual_and_other,
    ) -> None:
        """Judge all variants, except those that the function rejects."""
        for name, make in variants:
            variant = problem.variant(name, make)
            several = () if variant.refused else incoming(variant)
            for each in dict.fromkeys(several):
                answer = subject.send(variant.call(each))
                self.judge_variant(name, variant, each, answer, named=len(several) > 1)
            if several:
                self.judge_plain(name, variant, subject)

    def finish(self, problem: Problem, implementation: str, check: str) -> VerifyResult:
        """Return the worst as a result that names every failed variant."""
        error = to_error(self._losses.errors, self._gradients.errors)
        result = self.result(problem, implementation, check, error, self.reference_error)
        if len(self._failed) > 1:
            reason = f"{result.reason}. Wrong {self.several(list(self._failed))}"
            result = replace(result, reason=reason)
        if result.status == FAIL:
            code = Code.KNOWN_LIMITATION if self.only_limits else result.code
            result = replace(result, interleaved=self.interleaved, code=code)
        return result if result.reason else replace(result, reason=self.note)


class Cost(IntEnum):
    """The judging that includes a check; each includes those before it."""

    FIRST = 0  # before all others, at every size
    FEW = 1  # of a Model's large arguments: few calls and copies
    QUICK = 2  # ``judge --quick``
    FULL = 3
    UNJUDGED = 4  # never: no training step does what it looks at


@dataclass(frozen=True)
class Check:
    """One check; its function's docstring says in two paragraphs what it tests."""

    name: str
    judge: Judge
    """Fill the tally or yield results; SubjectError if the subject raised."""
    place: int
    """Checks run in this order."""
    facet: Facet
    """The aspect of a kernel under which verdicts list it."""
    catches: str
    advice: str
    formerly: tuple[str, ...] = ()
    """Earlier names, still accepted."""
    cost: Cost = Cost.FULL
    pass_: PassName = "forward_backward"
    """The config's pass that includes it."""
    adapt: Callable[[Case], Case] = lambda case: case
    """Make the case to run on from a config's case."""
    once: bool = True
    """Whether the largest case that fits stands for all of its :attr:`Case.kind`."""
    mean_for_sum: bool = False
    """Whether a mean of losscli's own kernels also stands for a sum, which is the same code path
    but for a factor that other checks test."""
    needs_gpu: bool = False
    needs_gradient: bool = True
    """Whether a Model without a gradient is skipped."""
    recompiles: bool = False
    """Whether it has layouts, shapes or losses that would each be compiled again."""
    captures: bool = False
    one_process: str = ""
    """Why it does not run over ranks; empty if it does."""
    held: Callable[[Case], Held] = lambda case: Held()
    results: Callable[[Spec], tuple[str, ...]] = lambda spec: ()
    """The names of its results, if they differ from the check's name."""
    units: tuple[Unit, ...] = (ELEMENT, ROW, HIDDEN_STATE, MODEL)
    asks: Callable[[Case], bool] = lambda case: True
    """Tell whether the check applies to a case."""
    concerns: Callable[[Implementation], bool] = lambda implementation: True
    """Tell whether the check applies to an implementation."""
    needs: str = ""
    """The cases that the check applies to, if not to all."""
    limits: Limits = lambda variant, errors: False
    """Tell whether a failed variant is only a limitation: ordinary operands do not need it."""

    def run(self, problem: Problem, subject: Subject) -> Iterator[VerifyResult]:
        """Yield a subject's results."""
        tally = Tally(limits=self.limits)
        results = self.judge(problem, subject, tally)
        yield from results or [tally.finish(problem, subject.name, self.name)]

    def missing(self, case: Case) -> Reason | None:
        """Return why the check cannot run on a case's device or ranks, or None."""
        if self.one_process and case.placement:
            text = f"the check {self.name} does not run over ranks: {self.one_process}"
            return Reason(Code.NOT_APPLICABLE, text)
        if self.needs_gpu and case.device == "cpu":
            return Reason(Code.NO_GPU, f"the check {self.name} runs only on a GPU")
        return None

    @property
    def losses(self) -> str:
        """The losses that it checks."""
        return " or ".join(UNIT_LOSSES[unit] for unit in self.units if unit != MODEL) + " losses"

    def why_not(self, case: Case, implementation: Implementation) -> Reason | None:
        """Return why the check does not apply, or None if it does."""
        to = self.needs
        if case.spec.unit not in self.units:
            to = self.losses
        elif self.asks(case) and self.concerns(implementation):
            return None
        return Reason(Code.NOT_APPLICABLE, f"the check {self.name} applies only to {to}")

    def key(self, case: Case, *, own: bool = False) -> tuple[object, ...]:
        """Return the key of cases of which one is enough; ``own``: for losscli's own kernels."""
        if self.missing(case):
            return ()
        if own and self.mean_for_sum and case.reduction == "sum":
            case = replace(case, reduction="mean")
        return case.kind if self.once else (case,)


def check(**fields: Any) -> Callable[[Judge], Check]:
    """Make a function a check with these ``fields`` of :class:`Check`."""
    return lambda judge: Check(judge.__name__, judge, **fields)


def takes_one_row(case: Case) -> bool:
    """Tell whether an elementwise loss accepts a target of one row for all rows."""
    return not case.spec.refused(list(case.reshaped((2, 3), (3,)).shapes.values()))


def paths(problem: Problem) -> dict[str, tuple[str, ...]]:
    """Return ``wrt`` of the paths of fused kernels: without and with gradients prepared."""
    return {"": (), ", when a gradient is wanted": problem.wrt[:1]}
