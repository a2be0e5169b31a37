"""Checks that every part of the operands is read, and has its own gradient."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor

from losscli.implementations.requests import Answer, Forward
from losscli.implementations.subject import Subject
from losscli.losses import ELEMENT, LOSS
from losscli.runs.records import FAIL, WARN
from losscli.truth.blocks import blocks_of, part
from losscli.truth.distances import Truth, compare, index_of
from losscli.truth.problem import Problem
from losscli.truth.setup import Incoming
from losscli.truth.tolerances import VALUE_ULP, Outcome, describe
from losscli.verify.checks import perturbation
from losscli.verify.checks.check import Cost, Tally, check, paths
from losscli.verify.checks.perturbation import at_least_loss, find_change, least_loss_values
from losscli.verify.needed_memory import Held


class _Probe:
    def __init__(self, problem: Problem, name: str, subject: Subject, tally: Tally) -> None:
        self.problem, self.name = problem, name
        self.subject, self.tally = subject, tally
        self.operand = operand = problem.operands[name]
        chosen = perturbation.probed_elements(operand.shape, operand.element_size())
        self.numbers = torch.tensor(chosen, device=operand.device)  # in the flattened operand
        self.change = find_change(problem, name)

    @contextmanager
    def changed(self, start: int, stop: int) -> Iterator[None]:
        """Change some elements, and restore them afterwards."""
        flat, where = self.operand.view(-1), self.numbers[start:stop]
        before = flat[where]
        flat[where] = self.change.take(start, stop)
        try:
            yield
        finally:
            flat[where] = before

    def _unchanged(self, truth: Truth, _: Tensor) -> Tensor:
        return part(self.operand, truth.block) == self.change.before

    def _where(self, number: int) -> str:
        return f"{self.name} {[*index_of(int(self.numbers[number]), self.operand.shape)]}"

    def judge_whole(self, incoming: Incoming, before: Answer) -> None:
        """Judge gradients and unreduced losses, which change only where they must."""
        shape, earlier = self.problem.oracle.shape, before.items()
        lenient = self.problem.like({})  # knows no truth of the contents before
        strict = replace(lenient, excuses=False)
        for name, got in self.subject.send(self.problem.call(incoming)).items().items():
            wrong = self.problem.misfit(name, got)
            was = earlier[name]
            if wrong or got is None or was is None or was.shape != got.shape:
                self.tally.fail(wrong or "its shape changes", f"{name}: ")
            elif got.shape == shape or name == f"{self.name} gradient":
                where = f"{name}, after {len(self.numbers)} changes of {self.name}: "
                if stray := self._stray_change(was, got):
                    self.tally.fail(stray, where)
                    continue
                outcome, _ = strict.judge(name, got, incoming, spared=self._unchanged)
                if outcome.status == FAIL and lenient.of_others:
                    values = (got, *(truth.value for truth in strict.truths(name, incoming)))
                    if not all(each.isfinite().all() for each in values):  # as an exponential
                        outcome, _ = lenient.judge(name, got, incoming, spared=self._unchanged)
                self.tally.add(outcome, None, where)

    def _stray_change(self, was: Tensor, got: Tensor) -> str:
        """Describe a change of a result where the operand has not changed, if there is one."""
        for block in blocks_of(got):
            before, after = was[block], got[block]
            same = (before == after) | (before.isnan() & after.isnan())
            stray = ~same & self._unchanged(Truth(block, after), after)
            if stray.any():
                inside = stray.nonzero()[0].tolist()
                index = tuple(cut.start + own for cut, own in zip(block, inside, strict=True))
                change = f"from {float(was[index]):.9g} to {float(got[index]):.9g}"
                return f"expected no change at {list(index)}, it changed {change}"
        return ""

    def judge_loss(self) -> None:
        """Judge the changes of a reduced loss, with the gradients prepared and without."""
        count, group = len(self.numbers), self.change.group
        if not group:
            reason = f"no change of one element of the {self.name} shows in a loss of this dtype"
            self.tally.add(Outcome(WARN, f"{reason}: only its gradient was checked"))
            return
        for title, wrt in paths(self.problem).items():
            missed: list[tuple[int, str]] = []
            for start in range(0, count, group):
                # A report names up to four.
                missed += self._missed(wrt, start, min(start + group, count), 4 - len(missed))
            if missed:
                number, reason = missed[0]
                names = ", ".join(self._where(each) for each, _ in missed)
                changed = float(self.change.take(number, number + 1))
                when = f"when {self._where(number)} alone becomes {changed:g}{title}"
                probed = f"{count} elements were changed, one a tile of {perturbation.TILE:,}"
                self.tally.fail(f"{reason} {when}; {probed}; wrong at least for {names}", "loss: ")
                return

    def _off(self, wrt: tuple[str, ...], start: int, stop: int) -> str:
        """Describe the error of the loss with some elements changed; empty if it is right."""
        problem = self.problem
        with self.changed(start, stop):
            loss = self.subject.send(Forward(problem.operands, wrt))
            overflows = problem.of_others and not bool(loss.isfinite().all())
            if overflows and not all(each.isfinite().all() for each in problem.formulas_losses()):
                return ""  # as a formula does
        if wrong := problem.misfit(LOSS, loss):
            return wrong
        due = self.change.expect(start, stop)
        expected, scale = torch.tensor(due, dtype=torch.float64, device=loss.device)
        errors = compare(loss, [Truth((), expected, scale)])
        right = errors.relative <= self.change.tolerance or errors.ulp <= VALUE_ULP
        return "" if right else describe(errors)

    def _missed(
        self, wrt: tuple[str, ...], start: int, stop: int, limit: int
    ) -> list[tuple[int, str]]:
        """Return up to ``limit`` missed elements by number, each with the reason."""
        reason = self._off(wrt, start, stop) if limit > 0 else ""
        if not reason:
            return []
        if stop - start == 1:
            return [(start, reason)]
        middle = (start + stop) // 2
        found = self._missed(wrt, start, middle, limit)
        found += self._missed(wrt, middle, stop, limit - len(found))
        # Wrong together and right apart: named by the first.
        return found or [(start, f"{reason} for {stop - start} changes at once")]


@check(
    place=30,
    facet="value",
    catches="rows or tails that are not read, 32-bit indices, a gradient that is written to the "
    "wrong place",
    advice="Read and write every element once; check the index arithmetic and the tail.",
    cost=Cost.QUICK,
    held=lambda case: Held(operands=2, results=2),
    units=(ELEMENT,),
)
def coverage(problem: Problem, subject: Subject, tally: Tally) -> None:
    """Check that every part of the operands is read and gets its own gradient.

    All elements have the smallest loss, usually zero. The check changes one element in each tile,
    both ends and the tail, each by a known amount: the loss has to change by that amount, gradients
    and unreduced losses only there.

    A call changes as many elements as the loss's dtype can tell from one fewer; if the loss is off,
    the check bisects to name the missed ones.
    """
    if problem.oracle.shape.numel():
        first, second, *later = problem.case.spec.names
        labels = problem.third_party and problem.third_party.labels  # which are 0 or 1
        own = least_loss_values(problem.case, second) != least_loss_values(problem.case)
        together = (first,) if own or labels else (first, second)
        _probe(at_least_loss(problem), together, subject, tally)
        for name in () if labels else (second, *later) if own else later:
            _probe(at_least_loss(problem, name), (name,), subject, tally)


def _probe(least: Problem, names: tuple[str, ...], subject: Subject, tally: Tally) -> None:
    # In the mean of float16 a gradient for 1 may be too small to be seen.
    mean = least.case.reduction == "mean"
    incoming = least.others[-1] if mean else Incoming("1", least.wrt, least.ones)
    before = subject.send(least.call(incoming))
    for name in names:
        probe = _Probe(least, name, subject, tally)
        with probe.changed(0, len(probe.numbers)):
            probe.judge_whole(incoming, before)
        if least.case.reduction != "none":
            probe.judge_loss()
