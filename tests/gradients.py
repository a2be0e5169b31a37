"""A loss with its gradients: in one tuple that can be compared, and judged by the oracle."""

import torch
from torch import Tensor

from losscli.implementations.requests import Answer
from losscli.runs.records import PASS, WARN
from losscli.truth.problem import Problem
from losscli.truth.setup import Incoming


def both(loss: Tensor, *leaves: Tensor, incoming: Tensor | None = None) -> tuple[Tensor, ...]:
    return (loss.detach(), *torch.autograd.grad(loss, leaves, incoming))


def ramp(loss: Tensor) -> Tensor:
    """Return incoming gradients that are not 1, and differ by row."""
    ones = torch.arange(loss.numel(), device=loss.device) % 5 - 2.5
    return ones.view(loss.shape).to(loss.dtype)


def assert_right(
    problem: Problem,
    answer: Answer,
    incoming: Incoming | None = None,
    allowed: tuple[str, ...] = (PASS, WARN),
) -> None:
    """Judge a loss and its gradients by the oracle and the loss's tolerance.

    A sum may be warned of, where PyTorch's own happens to be the more accurate one.
    """
    incoming = incoming or problem.usual
    outcome, _ = problem.judge_loss(answer.loss)
    assert outcome.status in allowed, f"{problem.case.name}: {outcome.reason}"
    for name in incoming.wrt:
        outcome, _ = problem.judge(name, answer.gradients[name], incoming)
        assert outcome.status in allowed, f"{problem.case.name}, {name}: {outcome.reason}"
