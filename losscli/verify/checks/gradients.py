"""The gradients of both operands.

Catches: a zero, absent or detached gradient, a wrong sign or branch, 1/rows for 1/N, a gradient
that belongs to another element, an incoming gradient that is ignored or applied twice, a target's
gradient that is not summed over what it was broadcast along, digits lost to a stored gradient
that underflows.

Each operand alone asks for a gradient with an incoming gradient of 1, as in most training loops;
then both do with -3, or with a tensor of normal values where nothing is reduced. The mean in
float16 gets a third, which undoes its 1/N: there the gradient for 1 underflows, and zeros pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from losscli.inputs import make_grad_output
from losscli.oracle import OPERANDS, Operand
from losscli.results import VerifyResult
from losscli.verify.checks.check import Check, Worst, to_error
from losscli.verify.problem import Problem
from losscli.verify.subject import Subject

_LARGEST_SCALE = 2**15
"""The largest power of two in float16."""


def _run(problem: Problem, subject: Subject) -> Iterator[VerifyResult]:
    """Judge each operand's gradient under every incoming gradient; the worst counts."""
    worst = {name: Worst() for name in OPERANDS}
    for incoming, wrt, grad_output in _incoming(problem):
        gradients = subject.gradients(problem.input, problem.target, wrt, grad_output)[1]
        for name in wrt:
            # Popped, so that a gradient of 4 GiB is freed as soon as it is judged.
            verdict, errors = problem.judge_gradient(name, gradients.pop(name), grad_output)
            worst[name].add(verdict, errors, f"incoming gradient {incoming}: ")
    for name in OPERANDS:
        error = to_error(gradient=worst[name].errors)
        yield worst[name].result(problem, subject.name, f"{name}_gradient", error)


def _incoming(problem: Problem) -> Iterator[tuple[str, tuple[Operand, ...], Tensor]]:
    """Yield incoming gradients: their name, who asks for a gradient, and the tensor."""
    loss = torch.empty((), dtype=problem.oracle.dtype, device=problem.input.device)
    shape = problem.oracle.loss_shape()
    ones = torch.ones_like(loss).expand(shape)
    yield "1", ("input",), ones
    yield "1", ("target",), ones
    if problem.case.reduction == "none":
        yield "of normal values", OPERANDS, make_grad_output(problem.case)
        return
    yield "-3", OPERANDS, torch.full_like(loss, -3.0)
    if problem.case.reduction == "mean" and loss.dtype == torch.float16:
        scale = min(2 ** int(math.log2(max(problem.oracle.shape.numel(), 1))), _LARGEST_SCALE)
        yield str(scale), OPERANDS, torch.full_like(loss, scale)


CHECK = Check("gradients", "forward_backward", "both gradients against the oracle", _run)
