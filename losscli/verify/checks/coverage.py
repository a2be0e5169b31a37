"""Checks that every part of the operands is read, and has its own gradient.

Catches: a kernel that reads one row in a hundred, a dropped tail, a 32-bit index, an element read
in place of another, a gradient written to another element. All elements get values with the
smallest loss, usually zero, so that the loss of a single changed element shows. Then one element
per tile of each operand is changed so that it costs a known amount: the loss has
to change by the oracle's amount, and the gradients and unreduced losses have to change there and
nowhere else. One call changes as many elements as the dtype of the loss can distinguish from one
fewer; where the loss is off, the check bisects until it can name missed elements.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from losscli.implementations.call_data import Answer
from losscli.implementations.subject import Subject
from losscli.losses import ELEMENT, LOSS
from losscli.runs.records import FAIL, PASS, WARN, VerifyResult
from losscli.truth.blocks import Block, block_elements, blocks, part
from losscli.truth.distances import Errors, compare, misfit
from losscli.truth.oracle import Truth
from losscli.truth.problem import Incoming, Problem
from losscli.truth.terms import largest_terms
from losscli.truth.tolerances import VALUE_ULP, Verdict, describe, judge_elements, judge_sums
from losscli.truth.worst import Worst
from losscli.verify.checks.check import Check
from losscli.verify.checks.places import TILE, index_of, places
from losscli.verify.checks.quiet import Loud, elements, find_loud, quiet, quiet_values
from losscli.verify.memory_plan import Held

_NAMED = 4
"""Elements that a report names."""


@dataclass(frozen=True)
class _Probe:
    """Elements of one operand of a quiet problem that are made loud."""

    problem: Problem
    name: str
    places: Tensor
    """In the flattened operand."""
    loud: Loud

    @classmethod
    def of(cls, problem: Problem, name: str) -> _Probe:
        """Choose the elements, and by how much they change."""
        operand = problem.operands[name]
        where = places(operand.shape, operand.element_size())
        return cls(
            problem, name, torch.tensor(where, device=operand.device), find_loud(problem, name)
        )

    @property
    def operand(self) -> Tensor:
        """What is changed."""
        return self.problem.operands[self.name]

    @contextmanager
    def changed(self, start: int, stop: int) -> Iterator[None]:
        """Make some of the elements loud, and quiet again."""
        flat, where = self.operand.view(-1), self.places[start:stop]
        before = flat[where]
        flat[where] = self.loud.take(start, stop)
        try:
            yield
        finally:
            flat[where] = before

    def where(self, number: int) -> str:
        """Name an element."""
        return f"{self.name} {index_of(int(self.places[number]), self.operand.shape)}"


def _run(problem: Problem, subject: Subject) -> Iterator[VerifyResult]:
    """Judge what has a shape with all elements changed at once, then the loss by groups."""
    worst = Worst()
    worst.add(Verdict(PASS), None, "")
    if problem.oracle.shape.numel():
        first, second, *later = problem.case.spec.names
        own = quiet_values(problem.case, second) != quiet_values(problem.case)
        _probe(quiet(problem), (first,) if own else (first, second), subject, worst)
        for name in (second, *later) if own else later:
            _probe(quiet(problem, name), (name,), subject, worst)
    yield worst.result(problem, subject.name, "coverage")


def _probe(still: Problem, names: tuple[str, ...], subject: Subject, worst: Worst) -> None:
    """Change elements of some operands of a quiet problem, one operand after the other."""
    # In the mean of float16 a gradient for 1 may be too small to be seen.
    mean = still.case.reduction == "mean"
    incoming = still.others[-1] if mean else Incoming("1", still.wrt, still.ones)
    before = subject.answer(still.call(incoming))
    for name in names:
        probe = _Probe.of(still, name)
        with probe.changed(0, len(probe.places)):
            after = subject.answer(still.call(incoming))
            _judge_places(probe, incoming, before, after, worst)
        if still.case.reduction != "none":
            _judge_loss(probe, subject, worst)


def _judge_places(
    probe: _Probe, incoming: Incoming, before: Answer, after: Answer, worst: Worst
) -> None:
    """Judge that gradients, and losses that have a shape, change where they have to alone."""
    oracle, operands = probe.problem.oracle, probe.problem.operands
    earlier = before.items()
    for name, got in after.items().items():
        own = name == f"{probe.name} gradient"
        due = oracle.loss_shape()
        if name != "loss":
            due = operands[_operand_of(name)].shape
        wrong = misfit(got, due, probe.operand, oracle.dtype)
        was = earlier[name]
        if wrong or got is None or was is None or was.shape != got.shape:
            worst.add(Verdict(FAIL, wrong or "its shape changes"), None, f"{name}: ")
        elif got.shape == oracle.shape or own:
            verdict = _judge_changes(probe, name, incoming, was, got)
            worst.add(verdict, None, f"{name}, after {len(probe.places)} changes of {probe.name}: ")


def _judge_changes(
    probe: _Probe, name: str, incoming: Incoming, was: Tensor, got: Tensor
) -> Verdict:
    """Compare, block by block, what has changed with what had to; values where it had to."""
    silent = probe.loud.quiet
    for block in blocks(got.shape, block_elements(got.device.type)):
        loud = (part(probe.operand, block) != silent).expand(got[block].shape)
        stray = (was[block] != got[block]) & ~loud
        if stray.any():
            index = _first(stray, block)
            change = f"from {float(was[index]):.9g} to {float(got[index]):.9g}"
            return Verdict(FAIL, f"expected no change at {list(index)}, it changed {change}")
        if loud.any():
            verdict = _judge_loud(probe, name, incoming, block, loud, got)
            if verdict.status == FAIL:
                return verdict
    return Verdict(PASS)


def _first(mask: Tensor, block: Block) -> tuple[int, ...]:
    """Return the index, in the whole, of the first that is set in a block."""
    inside = mask.nonzero()[0].tolist()
    return tuple(cut.start + place for cut, place in zip(block, inside, strict=True))


def _judge_loud(
    probe: _Probe, name: str, incoming: Incoming, block: Block, loud: Tensor, got: Tensor
) -> Verdict:
    """Judge the values of changed elements."""
    problem = probe.problem
    errors = compare(got[block][loud], [_truth(probe, name, incoming, block, loud, got)])
    if got.shape == problem.oracle.shape:
        verdict = judge_elements(errors, problem.granted)
    else:
        verdict = judge_sums(errors, got.dtype, problem.granted)
    if verdict.status != FAIL:
        return verdict
    inside = loud.nonzero()[errors.index[0]].tolist()
    index = tuple(cut.start + place for cut, place in zip(block, inside, strict=True))
    return Verdict(FAIL, describe(replace(errors, index=index)))


def _truth(
    probe: _Probe, name: str, incoming: Incoming, block: Block, loud: Tensor, got: Tensor
) -> Truth:
    """Return the truth of the loss or of a gradient where elements are loud."""
    problem, shape = probe.problem, probe.problem.oracle.shape
    values = {}
    for operand, whole in problem.operands.items():
        if got.shape == shape:
            whole = part(whole, block).expand(loud.shape)[loud]
        elif operand == probe.name:
            whole = whole[block][loud]
        else:  # All elements of another operand are the same.
            whole = whole.flatten()[0].expand(int(loud.sum()))
        values[operand] = whole.double()
    where = (slice(0, int(loud.sum())),)
    if name == LOSS:
        losses = elements(problem.case, values)
        return Truth(where, losses, largest_terms(problem.case, LOSS, values, losses))
    operand = _operand_of(name)
    wrt = values[operand].requires_grad_()
    with torch.enable_grad():
        total = elements(problem.case, values).sum()
    (gradient,) = torch.autograd.grad(total, wrt)
    # The incoming gradient is the same everywhere, and so is what else meets an element.
    factor = float(incoming.grad_output.flatten()[0]) * (shape.numel() / got.numel())
    factor /= shape.numel() if problem.case.reduction == "mean" else 1
    gradient *= factor
    return Truth(where, gradient, largest_terms(problem.case, operand, values, gradient, factor))


def _operand_of(gradient: str) -> str:
    """Return the name of the operand whose gradient a part of an answer is."""
    return gradient.removesuffix(" gradient")


def _judge_loss(probe: _Probe, subject: Subject, worst: Worst) -> None:
    """Judge the loss of each group, on both paths, and name elements that it misses."""
    count, group = len(probe.places), probe.loud.group
    if not group:
        reason = f"no change of one element of the {probe.name} shows in a loss of this dtype"
        # The result has to say that the loss was not checked.
        worst.add(Verdict(WARN, f"{reason}: only its gradient was checked"), None, "")
        return
    paths: tuple[tuple[str, tuple[str, ...]], ...] = (
        ("", ()),
        (", when a gradient is wanted", probe.problem.wrt[:1]),
    )
    for title, wrt in paths:
        off = partial(_off, probe, subject, wrt)
        missed: list[tuple[int, str]] = []
        for start in range(0, count, group):
            missed += _missed(off, start, min(start + group, count), _NAMED - len(missed))
            if len(missed) >= _NAMED:
                break
        if missed:
            number, reason = missed[0]
            names = ", ".join(probe.where(each) for each, _ in missed)
            text = (
                f"{reason} when {probe.where(number)} alone becomes {probe.loud.value(number):g}"
                f"{title}; {count} elements were changed, one a tile of {TILE:,}; wrong at least "
                f"for {names}"
            )
            worst.add(Verdict(FAIL, text), None, "loss: ")
            return
    worst.add(Verdict(PASS), None, "")


def _off(probe: _Probe, subject: Subject, wrt: tuple[str, ...], start: int, stop: int) -> str:
    """Say how the loss is wrong when some elements are loud; empty if it is right."""
    problem = probe.problem
    with probe.changed(start, stop):
        loss = subject.loss(problem.operands, wrt)
    wrong = misfit(loss, torch.Size(), problem.prediction, problem.oracle.dtype)
    if wrong:
        return wrong
    due = (probe.loud.expect(start, stop), probe.loud.expect_scale(start, stop))
    expected, scale = torch.tensor(due, dtype=torch.float64, device=loss.device)
    errors: Errors = compare(loss, [Truth((), expected, scale)])
    if errors.relative <= probe.loud.tolerance or errors.ulp <= VALUE_ULP:
        return ""
    return describe(errors)


def _missed(off: partial[str], start: int, stop: int, limit: int) -> list[tuple[int, str]]:
    """Return, of elements that are wrong together, up to ``limit`` by number with the reason."""
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


CHECK = Check(
    "coverage",
    "forward_backward",
    _run,
    once=True,
    held=lambda case: Held(operands=2, results=2),
    units=(ELEMENT,),
)
