"""Checks the gradients of all operands.

Catches: a zero, absent or detached gradient, a wrong sign or branch, 1/rows for 1/N, a gradient
that belongs to another element, an incoming gradient that is ignored or applied twice, a target's
gradient that is not summed over the broadcast dimensions, digits lost to a stored gradient that
underflows, a small gradient that is taken for zero. The check computes the gradient of each operand
alone with an incoming gradient of 1, as in most training loops; then that of the prediction with
32768, as under a gradient scaler, and those of all with -3/1024 (in float16 with -3, and for a mean
with about N), or with a tensor of normal values without a reduction.
"""

from __future__ import annotations

from collections.abc import Iterator

from losscli.implementations.subject import Subject
from losscli.losses import Spec
from losscli.runs.records import VerifyResult
from losscli.truth.problem import Problem
from losscli.truth.worst import Worst, to_error
from losscli.verify.checks.check import Check


def _run(problem: Problem, subject: Subject) -> Iterator[VerifyResult]:
    """Judge each operand's gradient under every incoming gradient; the worst counts."""
    worst = {name: Worst() for name in problem.wrt}
    for incoming in (*problem.alone, *problem.others):
        gradients = subject.answer(problem.call(incoming)).gradients
        for name in incoming.wrt:
            # Popped, so that a gradient of 4 GiB is freed as soon as it is judged.
            verdict, errors = problem.judge_gradient(name, gradients.pop(name), incoming)
            worst[name].add(verdict, errors, f"incoming gradient {incoming.name}: ")
    for name in problem.wrt:
        error = to_error(gradient=worst[name].errors)
        torchs = to_error(gradient=problem.torchs_gradients.get(name))
        yield worst[name].result(problem, subject.name, f"{name}_gradient", error, torchs)


def _results(spec: Spec) -> tuple[str, ...]:
    """Return the names of the results of a loss."""
    return tuple(f"{name}_gradient" for name in spec.differentiable)


CHECK = Check(
    "gradients",
    "forward_backward",
    _run,
    results=_results,
)
