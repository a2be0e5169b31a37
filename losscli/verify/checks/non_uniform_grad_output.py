"""Checks grad_outputs that differ by row, and batches in parts."""

import torch
from torch import Tensor

from losscli.implementations.requests import Answer, Call
from losscli.implementations.subject import Subject
from losscli.losses import ELEMENT, HIDDEN_STATE, ROW
from losscli.truth.inputs import make_grad_output
from losscli.truth.problem import Problem
from losscli.truth.setup import Incoming
from losscli.verify.checks.check import Tally, check
from losscli.verify.geometry.geometry import expanded_rows, of_shape, transposed

SHAPE = (64, 101)
"""A power of two rows, so that a part's share of a mean is exact; rows of no whole vectors."""
Rows = tuple[int, ...]
SPLITS: dict[str, Rows] = {
    "parts of 1, 5 and 58 rows": (1, 5, 58),
    "parts of 16 rows": (16, 16, 16, 16),
    "single rows": (1,) * 64,
}


@check(
    place=230,
    facet="gradient",
    catches="a grad_output of which only the first row or the strides are used, a mean of means, "
    "a batch whose parts do not add up",
    advice="Multiply each element by its own element of grad_output.",
    formerly=("parts",),
    adapt=of_shape(SHAPE),
    units=(ELEMENT, ROW, HIDDEN_STATE),
)
def non_uniform_grad_output(problem: Problem, subject: Subject, tally: Tally) -> None:
    """Check grad_outputs that differ by row, and batches in parts.

    Without a reduction, grad_outputs whose first row is zero, negative ones, ones of a single row,
    column or number with stride 0, and transposed ones. Batches in parts of few and of many rows
    have to add up to the whole.
    """
    if problem.case.reduction == "none":
        for incoming in _incoming(problem):
            answer = subject.send(problem.call(incoming))
            tally.judge_variant(f"grad_output {incoming.name}", problem, incoming, answer)
    # The mean over rows of which some are ignored is no mean of the parts' means.
    if problem.case.spec.unit == ELEMENT or problem.case.reduction != "mean":
        for name, rows in SPLITS.items():
            answer = _joined(problem, subject, rows)
            tally.judge_variant(name, problem, problem.usual, answer)


def _incoming(problem: Problem) -> list[Incoming]:
    normal = make_grad_output(problem.case)
    zeros = normal.clone()
    zeros[0] = 0
    values = {
        "with a first row of zeros": zeros,
        "with a first row alone": normal - zeros,
        "of negative values": -normal.abs(),
    }
    if normal.dim() == 1:
        values |= {
            "of one number, with stride 0": expanded_rows(normal),
            "of every second of more": normal.repeat_interleave(2)[::2],
        }
    else:
        values |= {
            "of one row, with stride 0": expanded_rows(normal),
            "of one column, with stride 0": normal[:, :1].expand(normal.shape),
            "of one number, with stride 0": normal[:1, :1].expand(normal.shape),
            "transposed": transposed(normal),
            "of every second column": normal.repeat_interleave(2, 1)[:, ::2],
        }
    return [Incoming(name, problem.wrt, value) for name, value in values.items()]


def _joined(problem: Problem, subject: Subject, rows: Rows) -> Answer:
    """Return the answer of a batch in parts: losses added, gradients concatenated."""
    unreduced, mean = (problem.case.reduction == each for each in ("none", "mean"))
    # Several values of a row lie in front of the rows.
    dimension = len(problem.oracle.unreduced_shape) - len(problem.oracle.units)
    losses: list[Tensor] = []
    found: dict[str, list[Tensor]] = {name: [] for name in problem.wrt}
    start = 0
    for count in rows:
        cut = slice(start, start := start + count)
        operands = {n: x[cut] if _is_split(problem, n) else x for n, x in problem.operands.items()}
        share = count / problem.oracle.shape[0] if mean else 1.0
        whole = problem.usual.grad_output
        coming = whole.narrow(dimension, cut.start, count) if unreduced else whole * share
        answer = subject.send(Call(operands, problem.wrt, coming))
        losses.append(answer.loss if unreduced else answer.loss.double() * share)
        for name, gradient in answer.gradients.items():
            if gradient is not None:
                found[name].append(gradient)
    if unreduced:
        loss = torch.cat(losses, dimension)
    else:
        loss = torch.stack(losses).sum().to(problem.oracle.dtype)
    return Answer(loss, {name: _together(problem, name, own) for name, own in found.items()})


def _is_split(problem: Problem, name: str) -> bool:
    if problem.case.spec.unit != ELEMENT:
        return not any(each.name == name and each.shared for each in problem.case.spec.operands)
    operand = problem.operands[name]
    return operand.dim() == problem.prediction.dim() and operand.shape[0] > 1


def _together(problem: Problem, name: str, parts: list[Tensor]) -> Tensor | None:
    if not parts or _is_split(problem, name):
        return torch.cat(parts) if parts else None
    return torch.stack([part.double() for part in parts]).sum(0).to(problem.operands[name].dtype)
