"""Checks operands that get other memory between forward and backward.

Catches: a backward pass that uses the current sizes, strides or addresses of the operands instead
of those in forward, and so writes beyond the end of a gradient or permutes it. The check sets
``x.data`` to a tensor of another shape: an error passes, as PyTorch raises one, and so does the
gradient of the earlier contents. Then it sets ``x.data`` to the same values with other strides:
only the right gradient passes. The other shape is smaller, so that a wrong access does not crash
this process, and it fits the other operand, of one row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from torch import Tensor

from losscli.cases import Case
from losscli.implementations.errors import SubjectError
from losscli.implementations.subject import Subject
from losscli.losses import ROW
from losscli.runs.records import PASS, VerifyResult
from losscli.truth.problem import Problem
from losscli.truth.tolerances import Verdict
from losscli.truth.worst import Worst
from losscli.verify.checks.check import Check
from losscli.verify.checks.expectation import judge
from losscli.verify.checks.layouts import layout_case

INCOMING = (1.0, 2.0)
"""The usual one, and one that may be unexpected."""


def _same_values(values: Tensor) -> Tensor:
    """Return the values with other strides."""
    if values.dim() == 2:
        return values.t().contiguous().t()
    return values.new_empty((len(values), 2))[:, 0].copy_(values)


def _smaller(values: Tensor) -> Tensor:
    """Return part of the rows of several, or all of one as a row of two dimensions."""
    return values[: len(values) // 2].clone() if values.dim() == 2 else values[None].clone()


CHANGES: dict[str, tuple[Callable[[Tensor], Tensor], bool]] = {
    "in other strides": (_same_values, False),
    "of another shape": (_smaller, True),
}
"""How memory changes, and whether an error is right."""


def changed_case(case: Case) -> Case:
    """Return a small case of two dimensions, with a target of one row."""
    shape = layout_case(case).shape
    if case.spec.unit == ROW:
        return case.reshaped(shape, distribution="normal")
    return case.reshaped(shape, shape[-1:], distribution="normal")


def _run(problem: Problem, subject: Subject) -> Iterator[VerifyResult]:
    """Judge each change of each operand; the worst counts."""
    worst = Worst()
    worst.add(Verdict(PASS), None, "")
    subject.answer(problem.call(problem.usual))  # who raises in any call says so plainly
    for value in INCOMING:
        for change, (change_data, may_raise) in CHANGES.items():
            for name in problem.wrt:
                incoming = problem.filled(value, problem.wrt)
                data = change_data(problem.operands[name])
                where = f"{name}.data {change}, incoming gradient {value:g}"
                try:
                    answer = subject.changed(problem.call(incoming), name, data)
                except SubjectError as error:
                    if not (may_raise and error.refused):
                        raise SubjectError(f"{where}: {error}") from error
                    continue
                for part, got in answer.items().items():
                    if part != "loss":
                        judge(problem, incoming, part, got, where, worst)
    yield worst.result(problem, subject.name, CHECK.name)


CHECK = Check(
    "changed_operands",
    "forward_backward",
    _run,
    adapt=changed_case,
    once=True,
)
