"""Checks of training steps: changing grad_outputs, also in CUDA graphs."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, partial

from msgspec.structs import replace

from losscli.cases.axes import CHANGING_VALUES
from losscli.implementations.gpu_requests import BackwardReplays, MakeGraphedCallables, OnStreams
from losscli.implementations.local import Gradients
from losscli.implementations.requests import Answer, Call, Head, JointGradients, RetainGraph
from losscli.implementations.subject import Subject, recordings
from losscli.losses import find_loss
from losscli.runs.records import FAIL
from losscli.truth.fingerprint import same_bits
from losscli.truth.problem import Problem
from losscli.truth.tolerances import describe
from losscli.verify.checks.check import NO_ORDER, Cost, Tally, check
from losscli.verify.checks.plain_calls import distance
from losscli.verify.geometry.element import small_case
from losscli.verify.needed_memory import Held

STEPS = (*(1.0, 1.0, 1.0), *(0.5, 0.5, 0.5), *CHANGING_VALUES, *(0.5, 0.5, 0.5), *(-2.0, 1.0, 1.0))
"""Values of grad_output: three alike may lead a kernel to expect a fourth."""
HEADS = ((0.5, 2.0), (0.5, 2.0), (0.5, 2.0), (2.0, 0.5))
STREAMS = ((0.5, 0.5, 0.5, 2.0, 0.5), (2.0, 2.0, 2.0, 2.0, 0.5))
MOST_OTHERS = 2
_VALUES = tuple(dict.fromkeys((*STEPS, *HEADS[0])))
_FIRST = -3.0
"""The first grad_output of a retained graph, which uses up a stored gradient."""


class Due:
    """The correct gradients of a problem for each grad_output, through two retained graphs."""

    def __init__(self, problem: Problem, subject: Subject) -> None:
        self.problem, self.subject = problem, subject
        self._right: set[tuple[float, str]] = set()
        """Gradients that the oracle has judged already."""
        values = (_FIRST, *_VALUES)
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
        steady = all(same_bits(gradient, second[key]) for key, gradient in first.items())
        self._bits = first if steady and not problem.chooses_order else {}
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
                off = describe(distance(want, got)) if want.shape == got.shape else "another shape"
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
        answers = subject.send(OnStreams(queues))
        for due, values, own in zip(dues, STREAMS, answers, strict=True):
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
    for own, weight in zip(able, CHANGING_VALUES[:MOST_OTHERS], strict=False):
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
