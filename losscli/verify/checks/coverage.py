"""Checks that every part of the operands is read, and has its own gradient."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from losscli.implementations.requests import Answer, Forward
from losscli.implementations.subject import Subject
from losscli.losses import ELEMENT, LOSS
from losscli.runs.records import FAIL, WARN
from losscli.truth.blocks import block_elements, blocks, part
from losscli.truth.distances import Errors, Truth, compare, index_of
from losscli.truth.problem import Problem
from losscli.truth.setup import Incoming
from losscli.truth.tolerances import VALUE_ULP, Outcome, describe
from losscli.verify.checks.check import Cost, Tally, check, paths
from losscli.verify.checks.perturbation import (
    TILE,
    at_least_loss,
    find_change,
    least_loss_values,
    probed_elements,
)
from losscli.verify.needed_memory import Held

_NAMED = 4
"""Elements that a report names."""


class _Probe:
    def __init__(self, problem: Problem, name: str) -> None:
        self.problem, self.name = problem, name
        self.operand = operand = problem.operands[name]
        chosen = probed_elements(operand.shape, operand.element_size())
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

    def unchanged(self, truth: Truth) -> Tensor:
        """Tell at which elements of a block the operand has not changed."""
        return part(self.operand, truth.block) == self.change.before

    def where(self, number: int) -> str:
        return f"{self.name} {[*index_of(int(self.numbers[number]), self.operand.shape)]}"


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
        probe = _Probe(least, name)
        with probe.changed(0, len(probe.numbers)):
            after = subject.send(least.call(incoming))
            _judge_whole(probe, incoming, before, after, tally)
        if least.case.reduction != "none":
            _judge_loss(probe, subject, tally)


def _judge_whole(
    probe: _Probe, incoming: Incoming, before: Answer, after: Answer, tally: Tally
) -> None:
    """Judge gradients and unreduced losses, which change only where they must."""
    shape, earlier = probe.problem.oracle.shape, before.items()
    lenient = probe.problem.like({})  # knows no truth of the contents before
    strict = replace(lenient, excuses=False)
    for name, got in after.items().items():
        own = name == f"{probe.name} gradient"
        wrong = probe.problem.misfit(name, got)
        was = earlier[name]
        if wrong or got is None or was is None or was.shape != got.shape:
            tally.fail(wrong or "its shape changes", f"{name}: ")
        elif got.shape == shape or own:
            where = f"{name}, after {len(probe.numbers)} changes of {probe.name}: "
            if stray := _stray_change(probe, was, got):
                tally.fail(stray, where)
                continue
            outcome, _ = strict.judge(name, got, incoming, spared=probe.unchanged)
            overflows = lenient.of_others and not bool(got.isfinite().all())
            if outcome.status == FAIL and overflows:  # as an exponential in many formulas
                outcome, _ = lenient.judge(name, got, incoming, spared=probe.unchanged)
            tally.add(outcome, None, where)


def _stray_change(probe: _Probe, was: Tensor, got: Tensor) -> str:
    """Describe a change of a result where the operand has not changed; empty if there is none."""
    for block in blocks(got.shape, block_elements(got.device.type)):
        before, after = was[block], got[block]
        same = (before == after) | (before.isnan() & after.isnan())
        stray = ~same & probe.unchanged(Truth(block, after))
        if stray.any():
            inside = stray.nonzero()[0].tolist()
            index = tuple(cut.start + own for cut, own in zip(block, inside, strict=True))
            change = f"from {float(was[index]):.9g} to {float(got[index]):.9g}"
            return f"expected no change at {list(index)}, it changed {change}"
    return ""


def _judge_loss(probe: _Probe, subject: Subject, tally: Tally) -> None:
    count, group = len(probe.numbers), probe.change.group
    if not group:
        reason = f"no change of one element of the {probe.name} shows in a loss of this dtype"
        tally.add(Outcome(WARN, f"{reason}: only its gradient was checked"))
        return
    for title, wrt in paths(probe.problem).items():
        off = partial(_off, probe, subject, wrt)
        missed: list[tuple[int, str]] = []
        for start in range(0, count, group):
            missed += _missed(off, start, min(start + group, count), _NAMED - len(missed))
        if missed:
            number, reason = missed[0]
            names = ", ".join(probe.where(each) for each, _ in missed)
            changed = float(probe.change.take(number, number + 1))
            text = (
                f"{reason} when {probe.where(number)} alone becomes {changed:g}"
                f"{title}; {count} elements were changed, one a tile of {TILE:,}; wrong at least "
                f"for {names}"
            )
            tally.fail(text, "loss: ")
            return


def _off(probe: _Probe, subject: Subject, wrt: tuple[str, ...], start: int, stop: int) -> str:
    """Describe the error of the loss with some elements changed; empty if it is right."""
    problem = probe.problem
    with probe.changed(start, stop):
        loss = subject.send(Forward(problem.operands, wrt))
        overflows = problem.of_others and not bool(loss.isfinite().all())
        if overflows and not all(each.isfinite().all() for each in problem.formulas_losses()):
            return ""  # as a formula does
    if wrong := problem.misfit(LOSS, loss):
        return wrong
    due = probe.change.expect(start, stop)
    expected, scale = torch.tensor(due, dtype=torch.float64, device=loss.device)
    errors: Errors = compare(loss, [Truth((), expected, scale)])
    if errors.relative <= probe.change.tolerance or errors.ulp <= VALUE_ULP:
        return ""
    return describe(errors)


def _missed(off: partial[str], start: int, stop: int, limit: int) -> list[tuple[int, str]]:
    """Return up to ``limit`` missed elements by number, each with the reason."""
    reason = off(start, stop) if limit > 0 else ""
    if not reason:
        return []
    if stop - start == 1:
        return [(start, reason)]
    middle = (start + stop) // 2
    found = _missed(off, start, middle, limit)
    found += _missed(off, middle, stop, limit - len(found))
    # Wrong together and right apart: named by the first.
    return found or [(start, f"{reason} for {stop - start} changes at once")]
