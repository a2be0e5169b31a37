"""The gradients of the gradients.

Catches: second derivatives that are silently zero, wrong in sign or in a branch, or not summed over
what an operand was broadcast along; an incoming gradient that is no part of them. The gradients of
both operands are multiplied by values of both signs and added up, and what comes out is
differentiated for both operands and the incoming gradient. Judged against float64 autograd through
the reference, relative to the largest derivative. Who raises has no second derivatives, which is
honest: the check is skipped, and says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from losscli.cases import Case
from losscli.results import FAIL, PASS, SKIPPED, VerifyResult
from losscli.verify.checks.check import Check
from losscli.verify.checks.layouts import layout_case
from losscli.verify.problem import Problem
from losscli.verify.subject import Curvature, Subject, SubjectError, misfit

ROUNDINGS = 32
"""Of the largest derivative, in units of the dtype's roundoff: sums of a few products, and over
what a small operand was broadcast along."""


def curvature_case(case: Case) -> Case:
    """Return the case with a small shape, whose target is broadcast as the loss's own is."""
    small = layout_case(case)
    return replace(small, target_shape=case.spec.default_target_shape(small.shape))


def _run(problem: Problem, subject: Subject) -> Iterator[VerifyResult]:
    """Judge each of the three; the first that is wrong counts."""
    curvature = _question(problem)
    result = VerifyResult(problem.case, subject.name, CHECK.name, PASS)
    try:
        found = subject.second_derivatives(curvature)
    except SubjectError as error:
        yield replace(result, status=SKIPPED, reason=f"no second derivatives: {error}")
        return
    for name, (operand, truth) in _truth(problem, curvature).items():
        wrong = _judge(found[name], operand, truth)
        if wrong:
            yield replace(result, status=FAIL, reason=f"of the {name}: {wrong}")
            return
    yield result


def _question(problem: Problem) -> Curvature:
    """Return what is asked: values of both signs toward both gradients."""
    generator = torch.Generator().manual_seed(problem.case.seed)

    def drawn(like: Tensor) -> Tensor:
        values = torch.randn(like.shape, generator=generator, dtype=torch.float64)
        return values.to(like.device, like.dtype)

    grad_output = drawn(problem.ones) if problem.case.reduction == "none" else problem.ones * 3
    return Curvature(
        problem.input, problem.target, grad_output, drawn(problem.input), drawn(problem.target)
    )


def _truth(problem: Problem, asked: Curvature) -> dict[str, tuple[Tensor, Tensor]]:
    """Return each operand and the truth of it, by float64 autograd through the reference."""
    case = problem.case
    x, y, g = (
        tensor.detach().double().requires_grad_()
        for tensor in (asked.input, asked.target, asked.grad_output)
    )
    settings = case.spec.resolve(case.params)
    loss = case.spec.reference(x, y, reduction=case.reduction, **settings)
    gradients = torch.autograd.grad(loss, (x, y), g, create_graph=True)
    products = [
        (gradient * toward.double()).sum()
        for gradient, toward in zip(gradients, asked.toward, strict=True)
    ]
    found = torch.autograd.grad(products[0] + products[1], (x, y, g), allow_unused=True)
    names = ("input", "target", "incoming gradient")
    operands = (asked.input, asked.target, asked.grad_output)
    return {
        name: (operand, torch.zeros_like(operand, dtype=torch.float64) if f is None else f)
        for name, operand, f in zip(names, operands, found, strict=True)
    }


def _judge(found: Tensor | None, operand: Tensor, truth: Tensor) -> str:
    """Say what is wrong; empty if nothing is."""
    largest = float(truth.abs().max()) if truth.numel() else 0.0
    if found is None:
        return f"expected values up to {largest:.3g}, got none" if largest else ""
    wrong = misfit(found, operand.shape, operand, operand.dtype)
    if wrong:
        return wrong
    error = (found.double() - truth).abs()
    bound = ROUNDINGS * torch.finfo(found.dtype).eps / 2 * largest
    # Written so that NaN is wrong.
    if bool((error <= bound).all()):
        return ""
    place = int(error.nan_to_num(nan=torch.inf).argmax())
    expected, got = float(truth.flatten()[place]), float(found.flatten()[place])
    index = tuple(int(i) for i in torch.unravel_index(torch.tensor(place), found.shape))
    return f"expected {expected:.6g}, got {got:.6g} at {index}, where up to {bound:.2g} is rounding"


CHECK = Check(
    "second_derivatives",
    "forward_backward",
    "second derivatives that are zero or wrong",
    _run,
    adapt=curvature_case,
    once=True,
)
