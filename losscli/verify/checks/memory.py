"""Checks of the memory that a call reads, writes and allocates, also under a budget."""

import math
from dataclasses import replace
from functools import partial

import torch
from msgspec import structs
from torch import Tensor

from losscli.cases.axes import LAYOUTS
from losscli.cases.case import Case
from losscli.implementations import memory_requests
from losscli.implementations.memory_requests import ExtraBytes, Growth, Poisoned, SharedMemory
from losscli.implementations.subject import Subject, bind
from losscli.losses import ELEMENT, HIDDEN_STATE, ROW, LinearSpec
from losscli.losses.linear.logits_plan import CHUNKS, SLICES, WHOLE, Size, chunks, least
from losscli.losses.linear.spec import MEMORY_BUDGET
from losscli.runs.records import FAIL
from losscli.truth.distances import first_difference
from losscli.truth.fingerprint import same_bits
from losscli.truth.inputs import NO_CLASS
from losscli.truth.problem import Problem
from losscli.units import format_bytes
from losscli.verify.checks.check import COPIES, Cost, Tally, check
from losscli.verify.checks.plain_calls import PlainCalls
from losscli.verify.geometry.geometry import of_shape, usual_and_other
from losscli.verify.needed_memory import Held

BAND = 4096
"""Elements of a band: more than a block reads at once, and a multiple of every alignment."""
FILLS = {"NaN": math.nan, "large values": 4096.0}
"""Two, because a comparison may drop NaN."""


class _Guarded:
    """A copy of values between two bands of a fill, or of no class."""

    def __init__(self, values: Tensor, fill: float) -> None:
        self.values, self.fill = values, fill if values.is_floating_point() else NO_CLASS
        self.whole = values.new_full((values.numel() + 2 * BAND,), self.fill)
        self.view = self.whole[BAND : BAND + values.numel()].view(values.shape).copy_(values)

    def changed(self) -> str:
        """Describe the first change of values or bands; empty if there is none."""
        if not same_bits(self.values, self.view):
            return f"was overwritten{_where(self.view, self.values)}"
        for name, band in (("before", self.whole[:BAND]), ("after", self.whole[-BAND:])):
            due = torch.full_like(band, self.fill)
            if not same_bits(band, due):
                return f"is where memory {name} it was overwritten{_where(band, due)}"
        return ""


def _where(now: Tensor, before: Tensor) -> str:
    where = first_difference(now, before)
    return where and f": {where}"


@check(
    place=310,
    facet="memory",
    catches="overwritten inputs, reads and writes out of bounds, results from uninitialised "
    "memory, leaks",
    advice="Stay within the bounds of the tensors, return new memory, and fill it completely.",
    cost=Cost.QUICK,
    held=lambda case: Held(operands=3, results=3),
    one_process=COPIES,
    needs_gradient=False,
)
def memory(problem: Problem, subject: Subject, tally: Tally) -> None:
    """Check that an implementation reads and writes only its own memory.

    Operands between bands of NaN and of large values, memory that is filled with a pattern before
    the call, and a hundred calls whose memory must not grow.

    An earlier result, and blocks of its size and of scratch size, are filled with a pattern and
    freed, so that the allocator reuses them: two patterns must give the same result.
    """
    # Copies throughout: an implementation that overwrites operands does not affect others.
    own = replace(problem, operands=problem.copies())
    plain = replace(PlainCalls.of(own, subject, problem.usual), problem=problem)
    for name in FILLS:
        _between_bands(plain, name, tally)
    call = problem.call(problem.usual, own.operands)
    if tally.outcome.status == FAIL:
        return
    if (shared := subject.send(SharedMemory(call))) is not None:
        reason = f"expected memory of its own, but it shares that of {shared[1]}"
        tally.fail(reason, f"{shared[0]}: ")
        return
    for pattern in (0xFF, 0x3F):  # the bytes of NaN and of an ordinary number in every dtype
        answer = subject.send(Poisoned(call, pattern))
        plain.judge(answer, f"memory full of bytes 0x{pattern:02x} before the call", tally)
    # Below the 32,768 elements from which PyTorch wakes its threads in each of a hundred calls.
    own = problem.variant("growth", lambda: problem.reshaped((31, 1021)))
    if grown := subject.again().send(Growth(own.call(own.usual))):
        taken = f"{memory_requests.GROWTH_CALLS} more calls took {format_bytes(grown)} more"
        size = format_bytes(own.prediction.nbytes)
        tally.fail(f"expected no memory growth, but {taken}, on operands of {size}")


def _between_bands(plain: PlainCalls, name: str, tally: Tally) -> None:
    guarded = {n: _Guarded(values, FILLS[name]) for n, values in plain.problem.operands.items()}
    views = {operand: guard.view for operand, guard in guarded.items()}
    answer = plain.subject.send(plain.problem.call(plain.incoming, views))
    for operand, guard in guarded.items():
        if changed := guard.changed():
            tally.fail(changed, f"{operand} ")
    plain.judge(answer, f"operands between {name}", tally)


@check(
    place=330,
    facet="memory",
    catches="copied operands, temporaries of full size",
    advice="Do not copy operands, and use no temporary of their size.",
    # A copy is clearly more than what sums take for themselves, which is more on a GPU.
    adapt=lambda case: case.reshaped(
        (256, 256) if case.device == "cpu" else (512, 512), distribution="uniform"
    ),
    one_process=COPIES,
    asks=lambda case: case.reduction == "mean" and not case.spec.composed_of,
    needs="means of losses with kernels of their own",
    units=(ELEMENT, ROW, HIDDEN_STATE),
    concerns=lambda implementation: implementation.temporaries == 0,
)
def allocations(problem: Problem, subject: Subject, tally: Tally) -> None:
    """Check the memory that a call takes beyond its results.

    The peak memory of forward and backward, in each layout of a config, may be at most half of the
    prediction. Only for means, and for implementations that plan no temporaries.
    """
    for layout in LAYOUTS:
        case = problem.case.reshaped(problem.case.shape, layout=layout)
        # As PyTorch's own, losses over rows convert operands of several dtypes to one.
        converted = case.spec.unit == ROW and len({case.dtypes[n] for n in case.spec.promoted}) > 1
        if case.impossible or converted:
            continue
        own = problem.variant(layout, partial(Problem.of, case, problem.loosened))
        extra = subject.send(ExtraBytes(own.call(own.filled(0.5))))
        if extra > own.prediction.nbytes // 2:
            expected = f"besides the loss and the gradient of {format_bytes(own.prediction.nbytes)}"
            held = f"a call held {format_bytes(extra)} more"
            tally.fail(f"{layout}: expected no memory {expected}, but {held}")


PLAN_SHAPE = (1100, 16, 512)
"""Enough rows for more than two chunks."""


def _budgets(case: Case) -> dict[str, int]:
    spec, (rows, width, classes) = case.spec, case.shape
    assert isinstance(spec, LinearSpec)
    size = Size(rows, width, classes, case.item_bytes, bent=case.params["softcap"] != 0)
    found: dict[str, int] = {WHOLE: 0, SLICES: least(size).bytes}
    if case.reduction != "none":
        found[CHUNKS] = chunks(size, rows // 2).bytes
    return found


@check(
    place=150,
    facet="memory",
    catches="parts that do not add up, a target in another slice, more memory than the budget",
    advice="Combine the parts of the logits to the result of the whole.",
    adapt=of_shape(PLAN_SHAPE),
    units=(HIDDEN_STATE,),
)
def linear_plans(problem: Problem, subject: Subject, tally: Tally) -> None:
    """Check every plan by which logits are computed in parts.

    For fused linear losses: memory budgets for all logits at once, for chunks of tokens and for
    slices of classes. losscli's own kernels may hold no more memory than the budget and a few
    numbers for each token.
    """
    for kind, budget in _budgets(problem.case).items():
        params = {**problem.case.params, MEMORY_BUDGET.name: float(budget)}
        case = structs.replace(problem.case, params=params)
        if subject.implementation.unavailable(case):
            continue  # it takes no budget
        own = bind(subject.implementation, case)
        name = f"{kind}, a budget of {format_bytes(budget)}" if budget else kind
        for incoming in dict.fromkeys(usual_and_other(problem)):
            answer = own.send(problem.call(incoming))
            tally.judge_variant(name, problem, incoming, answer, named=True)
        copies = case.placement or (case.device == "cpu" and case.item_bytes < 4)
        if budget and subject.implementation.temporaries == 0 and not copies:
            extra = own.send(ExtraBytes(problem.call(problem.usual)))
            if extra > budget + 64 * case.shape[0]:  # a plan does not count a token's few numbers
                held = f"a call held {format_bytes(extra)} besides its results"
                tally.fail(f"expected at most the budget, but {held}", f"{name}: ")
