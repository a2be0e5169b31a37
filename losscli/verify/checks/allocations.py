"""Checks the memory that a call takes beyond its results.

Catches: operands that are copied because they are not contiguous, have mixed dtypes or repeat, and
temporaries of full size. PyTorch's own allocators measure the peak memory of a forward and backward
pass, for each layout of a config; beyond the loss and the gradient a call may hold nothing as large
as half of the prediction. The check applies to implementations whose memory plan has no
temporaries.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from msgspec.structs import replace

from losscli import layouts
from losscli.axes import LAYOUTS, Layout
from losscli.cases import Case
from losscli.implementations.subject import Subject
from losscli.losses import ROW
from losscli.runs.records import FAIL, PASS, VerifyResult
from losscli.truth.problem import Problem
from losscli.truth.tolerances import Verdict
from losscli.truth.worst import Worst
from losscli.units import format_bytes
from losscli.verify.checks.check import Check

SIZE = (256, 256)
"""A copy is clearly more than what sums take for themselves on a CPU."""
GPU_SIZE = (512, 512)
"""A GPU's sums take more."""


def allocations_case(case: Case) -> Case:
    """Return the case with the size of this check."""
    size = SIZE if case.device == "cpu" else GPU_SIZE
    return case.reshaped(size, distribution="uniform")


def _run(problem: Problem, subject: Subject) -> Iterator[VerifyResult]:
    """Judge each layout; the worst counts."""
    worst = Worst()
    worst.add(Verdict(PASS), None, "")
    for layout in LAYOUTS:
        case = _laid_out(problem.case, layout)
        if case.impossible or _is_converted(case):
            continue
        own = problem.variant(layout, partial(Problem.of, case, problem.loosened))
        call = own.call(own.filled(0.5))
        extra = subject.extra_bytes(call)
        if extra > own.prediction.nbytes // 2:
            reason = (
                f"{layout}: expected no memory beside the loss and the gradient of "
                f"{format_bytes(own.prediction.nbytes)}, but a call held {format_bytes(extra)} more"
            )
            worst.add(Verdict(FAIL, reason), None, "")
    yield worst.result(problem, subject.name, CHECK.name)


def _is_converted(case: Case) -> bool:
    """Tell whether a loss over rows takes its operands in one dtype alone, as PyTorch's does."""
    return case.spec.unit == ROW and len({case.dtypes[name] for name in case.spec.promoted}) > 1


def _laid_out(case: Case, layout: Layout) -> Case:
    """Return the case in a layout."""
    size = case.shape
    usual = case.spec.default_target_shape(size)
    shapes = layouts.input_shape(size, layout), layouts.target_shape(size, layout, usual)
    return replace(case, shape=shapes[0], target_shape=shapes[1], layout=layout)


CHECK = Check(
    "allocations",
    "forward_backward",
    _run,
    adapt=allocations_case,
    once=True,
    asks=lambda case: case.reduction == "mean",
    needs="means",
    concerns=lambda implementation: implementation.temporaries == 0,
)
