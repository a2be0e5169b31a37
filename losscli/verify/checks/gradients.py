"""Checks of gradients: their values, and successive backward passes."""

from collections.abc import Callable, Iterator, Sequence
from itertools import product

import torch
from msgspec.structs import replace
from torch import Tensor

from losscli.cases.case import Case
from losscli.implementations.errors import SubjectError
from losscli.implementations.local import Operands
from losscli.implementations.requests import Accumulate, Call, ChangedData, Forward, RetainGraph
from losscli.implementations.subject import Subject
from losscli.losses import ELEMENT, HIDDEN_STATE, ROW, RowSpec
from losscli.runs.records import FAIL, PASS, VerifyResult
from losscli.truth.distances import compare, misfit, truths_of
from losscli.truth.gate import Worst, to_error
from losscli.truth.inputs import make_generator
from losscli.truth.problem import Judged, Problem
from losscli.truth.setup import Incoming
from losscli.truth.tolerances import ELEMENT_ULP, Outcome, judge_sums, magnitudes, sum_bound
from losscli.verify.checks.check import COPIES, Cost, Tally, check, takes_one_row
from losscli.verify.geometry.element import small_case
from losscli.verify.geometry.geometry import Relayout, every_second, transposed


@check(
    place=20,
    facet="gradient",
    catches="a gradient that is zero, missing, detached or of the wrong sign, a small gradient "
    "that is treated as zero, a grad_output that is ignored or applied twice, a broadcast that is "
    "not summed over",
    advice="Derive the loss by each operand that requires a gradient, and multiply by "
    "grad_output, and by 1/N for a mean; the gradient of the target is not always the negative of "
    "the input's.",
    cost=Cost.FIRST,
    once=False,
    results=lambda spec: tuple(f"{name}_gradient" for name in spec.differentiable),
)
def gradients(problem: Problem, subject: Subject, tally: Tally) -> Iterator[VerifyResult]:
    """Check the gradients of all operands.

    Each operand's gradient by itself, for a grad_output of 1, as in most training loops. The
    prediction's gradient for a grad_output of 32768, as with a gradient scaler. All gradients
    together for a grad_output of -3/1024 (in float16 of -3, and in a mean of N elements of about
    N), or of a tensor if there is no reduction. The results are reported as `input_gradient`,
    `target_gradient` and so on.
    """
    worst = {name: Worst() for name in problem.wrt}
    alone = (problem.filled(1.0, (name,)) for name in problem.wrt)
    for incoming in (*alone, *problem.others):
        found = subject.send(problem.call(incoming)).gradients
        for name in incoming.wrt:
            # Popped, so that a gradient of 4 GiB is freed as soon as it is judged.
            judged = problem.judge(name, found.pop(name), incoming)
            worst[name].add(*judged, f"grad_output {incoming.name}: ")
    for name in problem.wrt:
        error = to_error(gradient=worst[name].errors)
        torchs = to_error(gradient=problem.torchs_gradients.get(name))
        yield worst[name].result(problem, subject.name, f"{name}_gradient", error, torchs)


@check(
    place=240,
    facet="repeated_backward",
    catches="a stored gradient that is scaled in place, buffers that the first pass consumes, "
    "results that a later pass overwrites",
    advice="Do not change saved tensors in backward: it may run twice.",
    formerly=("retained",),
    cost=Cost.QUICK,
    adapt=small_case,
)
def retain_graph(problem: Problem, subject: Subject, tally: Tally) -> None:
    """Check four backward passes through one retained graph.

    Two grad_outputs alternate. Each result is judged when it is computed, and again after the last
    pass.
    """
    one, other = problem.others[-1], problem.usual
    if problem.case.reduction == "none":
        other = Incoming("twice that", problem.wrt, one.grad_output * 2)
    asked = (one, other, one, other)
    call = Call(problem.operands, problem.wrt)
    answers = subject.send(RetainGraph(call, [incoming.grad_output for incoming in asked]))
    found = []
    for number, (incoming, answer) in enumerate(zip(asked, answers, strict=True), 1):
        found.append((number, incoming, answer))
        where = f"backward {number} through one graph, grad_output {incoming.name}"
        tally.judge_answer(problem, incoming, answer, where, loss=False)
    for number, incoming, answer in found:
        where = f"what backward {number} returned, after {len(asked)} through one graph"
        tally.judge_answer(problem, incoming, answer, where, loss=False)


TIMES = 2
"""The second pass may behave differently from the first."""
_SHARE = -0.75
"""The initial ``.grad`` relative to the gradient; were it small, an error in it would not show."""


@check(
    place=250,
    facet="repeated_backward",
    catches="a `.grad` that is cleared, overwritten or added to twice",
    advice="Return the gradient and let autograd add it to .grad.",
    adapt=small_case,
)
def accumulation(problem: Problem, subject: Subject, tally: Tally) -> None:
    """Check that gradients are added to an existing ``.grad``.

    Two losses on operands whose ``.grad`` is -0.75 times the gradient of a plain call. The sum is
    judged within the tolerance of sums.
    """
    found = subject.send(problem.call(problem.usual)).gradients
    once = {name: gradient for name, gradient in found.items() if gradient is not None}
    if len(once) < len(found):
        which = "both" if len(found) == 2 else "all"
        tally.fail(f"expected gradients of {which} operands, got none of one")
        return
    before = {name: gradient * _SHARE for name, gradient in once.items()}
    for name, got in subject.send(Accumulate(problem.call(problem.usual), before, TIMES)).items():
        tally.add(*_judge_sum(before[name], once[name], got), f".grad of the {name}: ")


def _judge_sum(before: Tensor, once: Tensor, got: Tensor | None) -> Judged:
    wrong = misfit(got, before.shape, before, before.dtype)
    if wrong or got is None:
        return Outcome(FAIL, wrong), None
    due = before.double() + TIMES * once.double()
    scale = before.double().abs() + TIMES * once.double().abs()
    errors = compare(got, truths_of(due, scale))
    outcome = judge_sums(errors, got.dtype)
    if outcome.status != PASS:
        reason = f"{outcome.reason}; .grad held {_SHARE:g} times the gradient before the call"
        outcome = Outcome(outcome.status, reason)
    return outcome, errors


CHANGES: dict[str, Relayout] = {
    "in other strides": lambda x: transposed(x) if x.dim() == 2 else every_second(x),
    "of another shape": lambda x: (x[: len(x) // 2] if x.dim() == 2 else x[None]).clone(),
}


def _changed_case(case: Case) -> Case:
    """Return a small case of two dimensions, with a target of one row if the loss accepts it."""
    small = small_case(case)
    if case.spec.unit != ELEMENT or case.has_whole_target or not takes_one_row(case):
        return small
    return small.reshaped(small.shape, small.shape[-1:])


@check(
    place=270,
    facet="inputs",
    catches="a backward pass that uses the current sizes, strides or addresses although forward "
    "ran with others",
    advice="Save operands with ctx.save_for_backward; keep no raw pointers.",
    formerly=("changed_operands",),
    cost=Cost.UNJUDGED,
    adapt=_changed_case,
    one_process=COPIES,
    recompiles=True,
)
def mutated_data(problem: Problem, subject: Subject, tally: Tally) -> None:
    """Check operands whose memory is replaced between forward and backward.

    ``x.data`` is set to a tensor of another shape: an error, as in PyTorch, passes, and so does the
    gradient of the earlier contents. It is also set to the same values with other strides.

    The other shape is smaller, so that a wrong access does not crash this process.
    """
    subject.send(problem.call(problem.usual))  # who raises in any call says so plainly
    for number, (change, changed), name in product((1.0, 2.0), CHANGES.items(), problem.wrt):
        incoming = problem.filled(number, problem.wrt)
        data = changed(problem.operands[name])
        where = f"{name}.data {change}, grad_output {number:g}"
        try:
            answer = subject.send(ChangedData(problem.call(incoming), name, data))
        except SubjectError as error:
            if data.shape == problem.operands[name].shape or not error.refused:
                raise SubjectError(f"{where}: {error}") from error
            continue
        tally.judge_answer(problem, incoming, answer, where, loss=False)


STEP = 2.0**-12
"""Rounding over it stays below 1e-9 of the products."""
MARGIN = 2.0**-6
"""The least distance from a kink: more than two steps of all operands."""


@check(
    place=280,
    facet="gradient",
    catches="a gradient that is not the derivative of the loss, even where the oracle is wrong in "
    "the same way",
    advice="The gradient is not the derivative of the loss: derive it again.",
    adapt=lambda case: replace(small_case(case), scale=1.0),
    asks=lambda case: case.dtype == "float64" and not case.spec.stops_gradient(case.params),
    needs="float64, and a formula without constant factors",
    units=(ELEMENT, ROW, HIDDEN_STATE),
)
def numeric(problem: Problem, subject: Subject, tally: Tally) -> None:
    """Check the gradients against finite differences of the loss, in float64.

    Along random directions of -1 and 1 the central difference of the loss has to be the product of
    the gradient and the direction.

    Richardson's extrapolation from the steps ``h`` and ``h / 2`` leaves less truncation than the
    two differ by; rounding is bounded as for sums. Inputs near a kink or an end of their domain are
    moved away first.
    """
    own = problem.variant("away from non-differentiable points", lambda: _away_from_kinks(problem))
    found = subject.send(own.call(own.usual)).gradients
    generator = make_generator(problem.case.seed, "direction")
    several = "both" if len(problem.wrt) == 2 else "all operands"
    for title, moved in (*((f"the {n}", (n,)) for n in problem.wrt), (several, problem.wrt)):
        along = {
            name: (torch.randint(2, each.shape, generator=generator) * 2.0 - 1.0).to(each)
            for name, each in own.operands.items()
            if name in moved
        }
        known = [(found[name], direction) for name, direction in along.items()]
        got = sum(float((each.double() * by).sum()) for each, by in known if each is not None)
        tally.add(_judge_slope(own, subject, along, got), None, f"along {title}: ")


def _judge_slope(problem: Problem, subject: Subject, along: Operands, got: float) -> Outcome:
    weights = problem.usual.grad_output

    def weighted(step: float) -> tuple[float, float]:
        """Return the loss a step along, and the sum of the magnitudes of its terms."""
        moved = {name: problem.operands[name] + step * along[name] for name in along}
        operands = {**problem.operands, **moved}
        losses = subject.send(Forward(operands))
        scale = magnitudes(problem.case, operands, losses)
        return float((losses * weights).sum()), float((scale * weights).abs().sum())

    def slope(step: float) -> tuple[float, float]:
        (ahead, one), (behind, other) = weighted(step), weighted(-step)
        return (ahead - behind) / (2 * step), max(one, other)

    (wide, magnitude), (narrow, _) = slope(STEP), slope(STEP / 2)
    expected = (4 * narrow - wide) / 3
    rounding = (ELEMENT_ULP * torch.finfo(torch.float64).eps + sum_bound(torch.float64)) * magnitude
    # Of both slopes, as the extrapolation weighs them: (4 * 2 + 1) / 3 times that of the wider.
    allowed = 3 * rounding / STEP + abs(narrow - wide)
    # Written so that NaN is wrong.
    if abs(expected - got) <= allowed:
        return Outcome(PASS)
    reason = f"the loss changes by {expected:.9g} per step, but its gradient says {got:.9g}"
    return Outcome(FAIL, f"{reason}; rounding explains at most {allowed:.2g}")


def _away_from_kinks(problem: Problem) -> Problem:
    spec, params = problem.case.spec, problem.case.params
    x, *others = problem.operands.values()
    if kinks := spec.kinks(params):
        x, *others = (operand.expand(problem.oracle.shape) for operand in (x, *others))
        _, slope = spec.branch_line(*others)
        coordinate = spec.branch_coordinate
        x = _moved(x, lambda x: [coordinate(x, *others) - kink for kink in kinks], slope)
        x = x.contiguous()
    elif isinstance(spec, RowSpec) and (from_kinks := spec.from_kinks):
        x = _moved(x, lambda x: from_kinks(x, *others, **params))
    problem = problem.like({spec.names[0]: x})
    own = {each.name: each for each in spec.operands if each.differentiable}
    return problem.like({n: o.smoothed(problem.operands[n], 2 * STEP) for n, o in own.items()})


def _moved(
    x: Tensor, distances: Callable[[Tensor], Sequence[Tensor]], slope: Tensor | float = 1.0
) -> Tensor:
    for number in range(len(distances(x))):
        distance = distances(x)[number]
        moved = x + torch.copysign(torch.full_like(x, 2 * MARGIN), distance) / slope
        x = torch.where(distance.abs() < MARGIN, moved, x)
    return x
