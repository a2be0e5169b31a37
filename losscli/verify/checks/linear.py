"""Checks of losses of hidden states: their values, sizes, layouts and plans."""

from __future__ import annotations

from msgspec import structs

from losscli.cases.case import Case
from losscli.implementations import Implementation
from losscli.implementations.requests import ExtraBytes
from losscli.implementations.subject import Subject, bind
from losscli.losses import HIDDEN_STATE, LinearSpec
from losscli.losses.linear.plan import CHUNKS, SLICES, WHOLE, Size, chunks, least
from losscli.losses.linear.spec import MEMORY_BUDGET
from losscli.truth.problem import Problem
from losscli.units import format_bytes
from losscli.verify.checks.check import Tally, check
from losscli.verify.geometry.geometry import of_shape

PLAN_SHAPE = (1100, 16, 512)
"""Enough rows for two chunks and more."""
_FEW_NUMBERS = 64
"""Bytes for each token that a plan does not count."""


def _budgets(case: Case) -> dict[str, int]:
    """Return a budget for each kind of plan that a case may have."""
    spec, (rows, width, classes) = case.spec, case.shape
    assert isinstance(spec, LinearSpec)
    size = Size(rows, width, classes, case.item_bytes, bent=case.params["softcap"] != 0)
    found: dict[str, int] = {WHOLE: 0, SLICES: least(size).bytes}
    if case.reduction != "none":
        found[CHUNKS] = chunks(size, rows // 2).bytes
    return found


def _is_planned(case: Case, implementation: Implementation) -> bool:
    """Tell whether an implementation keeps to budgets.

    On a CPU products of 16 bits take copies of their operands in float32, which no budget counts.
    """
    if case.placement:  # the shard is copied, too
        return False
    return implementation.temporaries == 0 and (case.device != "cpu" or case.item_bytes >= 4)


@check(
    place=150,
    facet="memory",
    catches="parts that do not add up, a target in another slice, more memory than the budget",
    advice="Add the parts of the logits up to what the whole gives.",
    adapt=of_shape(PLAN_SHAPE),
    units=(HIDDEN_STATE,),
)
def linear_plans(problem: Problem, subject: Subject, tally: Tally) -> None:
    """Check every way in which the logits are made in parts, by budgets of memory.

    For losses of hidden states: a budget for all logits at once, for chunks of tokens and for
    slices of classes; of losscli's own kernels also what a call holds: it may be the budget and a
    few numbers for each token.
    """
    for kind, budget in _budgets(problem.case).items():
        case = structs.replace(
            problem.case, params={**problem.case.params, MEMORY_BUDGET.name: float(budget)}
        )
        if subject.implementation.unavailable(case):
            continue  # it takes no budget
        own = bind(subject.implementation, case)
        name = f"{kind}, a budget of {format_bytes(budget)}" if budget else kind
        for incoming in dict.fromkeys((problem.usual, problem.others[-1])):
            call = problem.call(incoming)
            tally.judge_variant(name, problem, incoming, own.send(call), by_incoming=True)
        if budget and _is_planned(case, subject.implementation):
            extra = own.send(ExtraBytes(problem.call(problem.usual)))
            if extra > budget + _FEW_NUMBERS * case.shape[0]:
                held = f"a call held {format_bytes(extra)} beside its results"
                tally.fail(f"expected at most the budget, but {held}", f"{name}: ")
