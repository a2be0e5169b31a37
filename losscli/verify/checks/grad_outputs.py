"""Checks of grad_outputs: that change from step to step, also in CUDA graphs, or differ by row."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, partial

import torch
from msgspec.structs import replace
from torch import Tensor

from losscli.cases.axes import CHANGING_VALUES
from losscli.implementations.gpu_requests import BackwardReplays, MakeGraphedCallables, OnStreams
from losscli.implementations.local import Gradients
from losscli.implementations.requests import Answer, Call, Head, JointGradients, RetainGraph
from losscli.implementations.subject import Subject, recordings
from losscli.losses import ELEMENT, HIDDEN_STATE, ROW, find_loss
from losscli.runs.records import FAIL
from losscli.truth.distances import compare, truths_of
from losscli.truth.fingerprint import same_bits
from losscli.truth.inputs import make_grad_output
from losscli.truth.problem import Problem
from losscli.truth.setup import Incoming
from losscli.truth.tolerances import describe
from losscli.verify.checks.check import NO_ORDER, Cost, Tally, check
from losscli.verify.geometry.element import small_case
from losscli.verify.geometry.geometry import expanded_rows, of_shape, transposed
from losscli.verify.needed_memory import Held

STEPS = (*(1.0, 1.0, 1.0), *(0.5, 0.5, 0.5), *CHANGING_VALUES, *(0.5, 0.5, 0.5), *(-2.0, 1.0, 1.0))
"""Values of grad_output: three alike may lead a kernel to expect a fourth."""
HEADS = ((0.5, 2.0), (0.5, 2.0), (0.5, 2.0), (2.0, 0.5))
STREAMS = ((0.5, 0.5, 0.5, 2.0, 0.5), (2.0, 2.0, 2.0, 2.0, 0.5))


class Due:
    """The correct gradients of a problem for each grad_output, through two retained graphs."""

    def __init__(self, problem: Problem, subject: Subject) -> None:
        self.problem, self.subject = problem, subject
        self._right: set[tuple[float, str]] = set()
        """Gradients that the oracle has judged already."""
        values = (-3.0, *dict.fromkeys((*STEPS, *HEADS[0])))  # the first uses up a stored gradient
        grad_outputs = [problem.filled(value).grad_output for value in values]
        asked = RetainGraph(Call(problem.operands, problem.wrt), grad_outputs)
        first, second = (
            {
                (value, name): gradient
                for value, answer in zip(values, subject.send(asked), strict=True)
                for name, gradient in answer.gradients.items()
            }
            for _ in range(2)
        )
        steady = not problem.chooses_order and all(
            same_bits(gradient, second[key]) for key, gradient in first.items()
        )
        self._bits = first if steady else {}
        """Those of a retained graph; empty if two such graphs do not agree, or need not."""

    @cached_property
    def _retained_is_right(self) -> bool:
        """Whether the retained graph's bits count; ``retain_graph`` reports wrong ones."""
        problem = self.problem
        judged = (
            problem.judge(name, gradient, problem.filled(value, problem.wrt))[0]
            for (value, name), gradient in self._bits.items()
        )
        return all(outcome.status != FAIL for outcome in judged)

    def judge(self, value: float, gradients: Gradients, where: str, tally: Tally) -> None:
        """Judge gradients for a constant grad_output."""
        incoming = self.problem.filled(value, self.problem.wrt)
        for name, got in gradients.items():
            title = f"{where}, grad_output {value:g}"
            want = self._bits.get((value, name))
            same = want is not None and same_bits(want, got)
            if not same or (value, name) not in self._right:
                tally.judge_part(self.problem, incoming, f"{name} gradient", got, title)
            if same:
                self._right.add((value, name))
            elif want is not None and got is not None and self._retained_is_right:
                alike = want.shape == got.shape
                off = describe(compare(got, truths_of(want))) if alike else "another shape"
                other = "a retained graph gives different bits for the same grad_output"
                tally.fail(f"{off}; {other}", f"{title}, {name} gradient: ")

    def judge_each(
        self, values: Sequence[float], answers: Iterable[Answer], where: str, tally: Tally
    ) -> None:
        """Judge the gradients of successive calls; ``where`` gets their numbers."""
        for number, (value, answer) in enumerate(zip(values, answers, strict=True), 1):
            self.judge(value, answer.gradients, f"{where} {number}", tally)


@check(
    place=260,
    facet="gradient",
    catches="a gradient that was computed for the grad_output of another call, loss, head or "
    "stream",
    advice="Use the grad_output of this call, not one from an earlier call.",
    formerly=("steps",),
    cost=Cost.QUICK,
    adapt=small_case,
    recompiles=True,
)
def repeated_backward(problem: Problem, subject: Subject, tally: Tally) -> None:
    """Check grad_outputs over a sequence of training steps.

    The same grad_output several times, then another, ten different ones, the first again; two heads
    with different weights in one backward pass, with other losses between them; on a GPU two
    streams at once. Gradients have to be bitwise equal to those of a retained graph, if two of
    those are.
    """
    due = Due(problem, subject)
    calls = (problem.call(problem.filled(value, problem.wrt)) for value in STEPS)
    due.judge_each(STEPS, map(subject.send, calls), "step", tally)
    if tally.outcome.status == FAIL:
        return
    dues = due, Due(problem.variant("sibling", problem.sibling), subject)
    _judge_heads(dues, [], "two heads", tally)
    if between := list(_other_losses(problem, subject)):
        tally.interleaved = tuple(head.case.loss for head in between if head.case)
        title = f"two heads, {' and '.join(tally.interleaved)} between them"
        _judge_heads(dues, between, title, tally)
    if problem.case.device != "cpu":
        queues = [
            [due.problem.call(due.problem.filled(value, due.problem.wrt)) for value in values]
            for due, values in zip(dues, STREAMS, strict=True)
        ]
        for due, values, own in zip(dues, STREAMS, subject.send(OnStreams(queues)), strict=True):
            due.judge_each(values, own, "two streams at once, step", tally)


def _judge_heads(dues: tuple[Due, Due], between: list[Head], title: str, tally: Tally) -> None:
    for number, weights in enumerate(HEADS, 1):
        first, last = (
            Head(None, Call(due.problem.operands, due.problem.wrt), weight)
            for due, weight in zip(dues, weights, strict=True)
        )
        found = dues[0].subject.send(JointGradients([first, *between, last]))
        ends = ("first", found[0]), ("second", found[-1])
        for due, weight, (which, gradients) in zip(dues, weights, ends, strict=True):
            due.judge(weight, gradients, f"{title}, step {number}, the {which}", tally)


def _other_losses(problem: Problem, subject: Subject) -> Iterator[Head]:
    """Yield heads of the losses that follow in the run, cyclically."""
    case, losses = problem.case, problem.beside.get(subject.name, ())
    if subject.implementation.file:  # what it calls by such a name may be no loss of its own
        return
    place = losses.index(case.loss) if case.loss in losses else 0
    others = [loss for loss in (*losses[place:], *losses[:place]) if loss != case.loss]
    cases = (
        replace(case, loss=loss, params=spec.resolve({})).reshaped(
            case.shape, spec.default_target_shape(case.shape)
        )
        for loss, spec in ((loss, find_loss(loss)) for loss in others)
    )
    able = (own for own in cases if not subject.implementation.unavailable(own))
    for own, weight in zip(able, CHANGING_VALUES[:2], strict=False):
        other = problem.variant(own.loss, partial(Problem.of, own))
        yield Head(own, Call(other.operands, other.wrt), weight)


REPLAYS = (2.0, 1.0, 1.0, 0.5, 0.5, 2.0, 1.0)


@check(
    place=370,
    facet="streams_and_graphs",
    catches="a captured backward pass that leaves out work that a replay needs",
    advice="Launch all work of backward on the current stream.",
    adapt=small_case,
    needs_gpu=True,
    one_process=NO_ORDER,
    held=lambda case: Held(operands=4, results=8, streams=4),
    captures=True,
)
def captured_backward(problem: Problem, subject: Subject, tally: Tally) -> None:
    """Check backward passes that a CUDA graph captured.

    On a GPU: only backward captured, and replayed with grad_outputs of 2 and then 1; a captured
    training step; both passes captured separately by ``make_graphed_callables``. Each gradient has
    to be bitwise that of a retained graph.
    """
    due = Due(problem, subject)
    call = problem.call(problem.filled(1.0, problem.wrt))
    incoming = [problem.filled(value).grad_output.clone() for value in REPLAYS]
    answers = subject.send(BackwardReplays(call, incoming))
    due.judge_each(REPLAYS, answers, "backward captured, replay", tally)
    due.judge_each(REPLAYS, _whole_steps(due), "forward and backward captured, replay", tally)
    answers = subject.send(MakeGraphedCallables(call, incoming))
    due.judge_each(REPLAYS, answers, "make_graphed_callables, replay", tally)


def _whole_steps(due: Due) -> Iterator[Answer]:
    problem, subject = due.problem, due.subject
    read = problem.filled(1.0, problem.wrt).grad_output.clone()
    with recordings(subject, [Call(problem.copies(), problem.wrt, read)]) as (recording,):
        for value in REPLAYS:
            read.fill_(value)
            yield subject.send(recording)


SHAPE = (64, 101)
"""A power of two rows, so that a part's share of a mean is exact; rows of no whole vectors."""
SPLITS: dict[str, tuple[int, ...]] = {
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


def _joined(problem: Problem, subject: Subject, rows: tuple[int, ...]) -> Answer:
    """Return the answer of a batch in parts: losses added, gradients concatenated."""
    unreduced, mean = (problem.case.reduction == each for each in ("none", "mean"))
    # Several values of a row lie in front of the rows.
    dimension = len(problem.oracle.unreduced_shape) - len(problem.oracle.units)
    losses: list[Tensor] = []
    found: dict[str, list[Tensor]] = {name: [] for name in problem.wrt}
    split = [name for name in problem.operands if _is_split(problem, name)]
    start = 0
    for count in rows:
        cut = slice(start, start := start + count)
        operands = problem.operands | {name: problem.operands[name][cut] for name in split}
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
