"""Checks that every part of the operands is read, and has its own gradient."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from losscli.cases.case import Case
from losscli.implementations.requests import Answer, Forward
from losscli.implementations.subject import Subject
from losscli.losses import ELEMENT, LOSS
from losscli.runs.records import FAIL, WARN
from losscli.truth.blocks import blocks_of, part
from losscli.truth.distances import Truth, compare, index_of
from losscli.truth.problem import Problem
from losscli.truth.setup import Incoming
from losscli.truth.tolerances import VALUE_ULP, Outcome, describe, elements, magnitudes, sum_bound
from losscli.verify.checks.check import Cost, Tally, check, paths
from losscli.verify.needed_memory import Held

TILE = 1024
MOST_TILES = 512
"""Larger tensors have evenly spaced tiles probed."""


def probed_elements(shape: Sequence[int], item_bytes: int) -> list[int]:
    """Return flat positions: one per tile, both ends, the tail, row ends, around 2^31 and 2^32."""
    count = math.prod(shape)
    tiles = -(-count // TILE)
    chosen = min(tiles, MOST_TILES)
    found = {0, *range(max(count - 17, 0), count)}  # more than a vector has
    probed = [number * tiles // chosen for number in range(chosen)]
    # 397 is a prime, so that every lane is probed in some tile.
    found |= {tile * TILE + tile * 397 % TILE for tile in probed}
    if len(shape) > 1:
        rows = count // max(shape[-1], 1)
        some = min(rows, 16)
        found |= {(number * rows // some + 1) * shape[-1] - 1 for number in range(some)}
    edges = [limit // size for limit in (2**31, 2**32) for size in (1, item_bytes)]
    found |= {edge + by for edge in edges for by in (-1, 0, 1)}
    return sorted(number for number in found if number < count)


_POWERS = range(12, -7, -1)
"""Exponents of the changes that are tried."""
_TRIED = tuple(sign * 2.0**power for power in reversed(_POWERS) for sign in (1, -1))
MOST = 4096
"""The most elements changed at once."""
_MARGIN = 2.0
"""How much more one element adds than is tolerated of its group."""


@dataclass(frozen=True)
class Perturbation:
    """New values that elements take in turn."""

    before: float
    values: Tensor
    adds: tuple[tuple[float, float], ...]
    """The amounts that each adds to the loss, and to the scale of its error."""
    base: tuple[float, float]
    """The unchanged loss, and the scale of its error."""
    group: int
    """The most changes at once among which a missed one shows; 0 if none does even alone."""
    tolerance: float
    """Relative, of the loss."""

    def take(self, start: int, stop: int) -> Tensor:
        """Return the values of a range of elements."""
        return self.values[torch.arange(start, stop, device=self.values.device) % len(self.values)]

    def expect(self, start: int, stop: int) -> tuple[float, float]:
        """Return the loss with a range of elements changed, and the scale of its error."""
        added = (self.adds[number % len(self.adds)] for number in range(start, stop))
        loss, scale = map(math.fsum, zip(self.base, *added, strict=True))
        return loss, scale


def at_least_loss(problem: Problem, name: str = "") -> Problem:
    """Return the problem with every element at its :func:`least_loss_values`."""
    values, form = least_loss_values(problem.case, name), torch.contiguous_format
    own = problem.operands
    return problem.like({n: torch.full_like(own[n], values[n], memory_format=form) for n in own})


def least_loss_values(case: Case, name: str = "") -> dict[str, float]:
    """Return the value of each operand, a power of two, at which the loss is least.

    ``name``: an operand whose changes must show, which needs a nonzero loss if it multiplies it.
    """
    first = case.spec.names[0]
    values = {operand.name: operand.domain.at_least_loss for operand in case.spec.operands}
    values[first] = _least(case, values, first)
    if name and not _shows(case, values, name):
        domain = case.spec.domains[first]
        moved = sorted(filter(domain.holds, _TRIED), key=lambda x: abs(math.log2(abs(x))))
        shown = (x for x in moved if _shows(case, {**values, first: x}, name))
        values[first] = next(shown, values[first])
        values[name] = _least(case, values, name)
    return values


def _losses(case: Case, values: dict[str, float], name: str, *also: float) -> dict[float, float]:
    """Return the loss for each value of an operand that is tried."""
    held = [value for value in (*also, *_TRIED) if case.spec.domains[name].holds(value)]
    tried = torch.tensor(held, dtype=torch.float64)
    filled = {each: torch.full_like(tried, value) for each, value in values.items()}
    return dict(zip(held, elements(case, {**filled, name: tried}).tolist(), strict=True))


def _least(case: Case, values: dict[str, float], name: str) -> float:
    losses = _losses(case, values, name, 0.0)
    return min(losses, key=lambda value: abs(losses[value]))


def _shows(case: Case, values: dict[str, float], name: str) -> bool:
    return len({*_losses(case, values, name).values()}) > 1


def find_change(problem: Problem, name: str) -> Perturbation:
    """Find the change that most elements can have at once."""
    case, oracle = problem.case, problem.oracle
    count, limits = oracle.shape.numel(), torch.finfo(oracle.dtype)
    operand = problem.operands[name]
    divisor = float(count) if case.reduction == "mean" else 1.0
    tolerance = max(sum_bound(oracle.dtype), max(VALUE_ULP, problem.granted or 0.0) * limits.eps)

    one = {n: each.flatten()[0].double().cpu() for n, each in problem.operands.items()}
    before = one[name]
    base = elements(case, one)
    total = float(base) * count / divisor
    scale = magnitudes(case, one, base)
    amounts = torch.tensor([[s * 2.0**p] for p in _POWERS for s in (1, -1)], dtype=torch.float64)
    # Exact in every dtype, and different, so that an element read for the next one shows.
    steps = 1 + torch.arange(8, dtype=torch.float64) / 16
    values = (before + amounts * steps).to(operand.dtype)
    held = case.spec.domains[name].inside(values.double())
    changed = {**one, name: held}
    losses = elements(case, changed)
    single = losses - base
    share = count / operand.numel() / divisor
    adds, scales = single * share, (magnitudes(case, changed, losses) - scale) * share
    total_scale = float(scale) * count / divisor

    least, most = adds.abs().amin(1), adds.abs().amax(1)
    growth = scales.abs().amax(1).clamp(min=torch.finfo(torch.float64).tiny)
    resolved = (least / (_MARGIN * tolerance) - abs(total_scale)) / growth
    in_range = (limits.max / 4 - abs(total)) / most
    # Below the normal numbers the spacing no longer shrinks with the value; and a formula that
    # rounds each element has to hold it.
    fits = least > _MARGIN * VALUE_ULP * limits.tiny * limits.eps
    fits &= single.abs().amax(1) < limits.max / 4
    inside = (held == values).all(1)
    fits &= inside & ((adds > 0).all(1) | (adds < 0).all(1))
    groups = torch.where(fits, torch.minimum(resolved, in_range), 0.0).clamp(0, MOST).long()
    best = int((2 * groups + inside).argmax())
    return Perturbation(
        before=float(before),
        values=values[best].to(operand.device),
        adds=tuple(zip(adds[best].tolist(), scales[best].tolist(), strict=True)),
        base=(total, total_scale),
        group=int(groups[best]),
        tolerance=tolerance,
    )


class _Probe:
    def __init__(self, problem: Problem, name: str, subject: Subject, tally: Tally) -> None:
        self.problem, self.name = problem, name
        self.subject, self.tally = subject, tally
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
                probed = f"{count} elements were changed, one a tile of {TILE:,}"
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
