"""The data of a check, and the tally of its verdicts over many variants of a case."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from msgspec.structs import replace

from losscli.axes import PassName
from losscli.cases import Case
from losscli.implementations import Implementation
from losscli.implementations.call_data import Answer
from losscli.implementations.subject import Subject
from losscli.losses import ELEMENT, ROW, Spec, Unit
from losscli.reasons import Reason
from losscli.runs.records import FAIL, VerifyResult
from losscli.truth.distances import Errors
from losscli.truth.problem import Incoming, Problem
from losscli.truth.tolerances import Verdict
from losscli.truth.worst import Worst, to_error
from losscli.verify.memory_plan import Held


@dataclass(frozen=True)
class Check:
    """One check."""

    name: str
    pass_: PassName
    """The pass of the config that asks for it: ``forward`` or ``forward_backward``."""
    run: Callable[[Problem, Subject], Iterator[VerifyResult]]
    """Yield a result for each thing judged; SubjectError where the subject raised."""
    adapt: Callable[[Case], Case] = lambda case: case
    """Make the case that the check runs on from a case of the config."""
    once: bool = False
    """Whether the largest case that fits speaks for all of its loss, parameters, dtype and
    reduction."""
    mean_for_sum: bool = False
    """Whether, of losscli's own kernels, a mean also speaks for a sum: they are one code path, and
    differ in a factor that other checks test."""
    needs_gpu: bool = False
    held: Callable[[Case], Held] = lambda case: Held()
    """What it holds in memory at once."""
    results: Callable[[Spec], tuple[str, ...]] = lambda spec: ()
    """The names of its results of a loss, if they differ from the check's name."""
    units: tuple[Unit, ...] = (ELEMENT, ROW)
    """Whether the check applies to losses of elements, of rows, or both."""
    asks: Callable[[Case], bool] = lambda case: True
    """Tell whether the check applies to a case."""
    concerns: Callable[[Implementation], bool] = lambda implementation: True
    """Tell whether the check applies to an implementation."""
    needs: str = ""
    """The cases that the check applies to, if not to all."""

    def missing(self, case: Case) -> Reason | None:
        """Return the reason that the check cannot run on a case's device; None if it can."""
        if self.needs_gpu and case.device == "cpu":
            return Reason("no_gpu", f"the check {self.name} runs only on a GPU")
        return None

    def why_not(self, case: Case, implementation: Implementation) -> Reason | None:
        """Return the reason that the check does not apply, or None if it does."""
        if case.spec.unit not in self.units:
            (unit,) = self.units
            text = f"the check {self.name} applies only to losses that each {unit} has"
            return Reason("not_applicable", text)
        if self.asks(case) and self.concerns(implementation):
            return None
        return Reason("not_applicable", f"the check {self.name} applies only to {self.needs}")

    def key(self, case: Case, *, own: bool = False) -> tuple[object, ...]:
        """Return the key of cases of which the check needs only one.

        ``own``: of losscli's own kernels.
        """
        if self.missing(case):
            return ()
        if own and self.mean_for_sum and case.reduction == "sum":
            case = replace(case, reduction="mean")
        return case.kind if self.once else (case,)


class Tally:
    """The verdicts of a check that tests many variants of a case, each by name."""

    def __init__(self, *, first: bool = False) -> None:
        """``first``: report the first variant that fails, not the worst."""
        self._losses, self._gradients, self._worst = Worst(), Worst(), Worst()
        self._failed: dict[str, None] = {}
        self._first = first

    def add(self, variant: str, part: str, judged: tuple[Verdict, Errors | None]) -> None:
        """Count the judgement of a part: ``loss``, or a gradient."""
        (self._losses if part == "loss" else self._gradients).add(*judged, "")
        if not (self._first and self._failed):
            self._worst.add(*judged, f"{variant}, {part}: ")
        if judged[0].status == FAIL:
            self._failed[variant] = None

    def judge(
        self,
        variant: str,
        problem: Problem,
        incoming: Incoming,
        answer: Answer,
        *,
        loss: bool = True,
        by_incoming: bool = False,
        any_for_nan: bool = False,
    ) -> None:
        """Judge the loss and the gradients of an answer, and count them.

        Args:
            variant: the name.
            problem: whose answer it is.
            incoming: what the gradients were multiplied by.
            answer: with the gradients that ``incoming`` asked for.
            loss: whether the loss counts.
            by_incoming: whether the gradients are named by what came in, too.
            any_for_nan: whether any gradient is right where the truth is NaN.
        """
        if loss:
            self.add(variant, "loss", problem.judge_loss(answer.loss))
        of = f" for {incoming.name}" if by_incoming else ""
        for operand in incoming.wrt:
            gradient = answer.gradients[operand]
            judged = problem.judge_gradient(operand, gradient, incoming, any_for_nan=any_for_nan)
            self.add(variant, f"{operand} gradient{of}", judged)

    def result(
        self,
        problem: Problem,
        implementation: str,
        check: str,
        name: Callable[[list[str]], str] = lambda failed: f"with {'; '.join(failed)}",
    ) -> VerifyResult:
        """Return the worst as a result, which names every variant that failed by ``name``."""
        error = to_error(self._losses.errors, self._gradients.errors)
        result = self._worst.result(problem, implementation, check, error)
        if len(self._failed) < 2:
            return result
        return replace(result, reason=f"{result.reason}. Wrong {name(list(self._failed))}")
