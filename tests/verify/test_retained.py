"""The check of several backward passes through one graph."""

from __future__ import annotations

import pytest
import torch
from test_wrong_implementations import judge, put, reference

from losscli.implementations import find_implementation
from losscli.losses import LOSSES, REDUCTIONS
from losscli.results import FAIL, PASS

CHECKS = ("retained",)


class Rescaled(torch.autograd.Function):
    """Scales the gradients that forward has kept, in place, each time it is asked."""

    @staticmethod
    def forward(ctx, case, input, target):
        x, y = (operand.detach().requires_grad_() for operand in (input, target))
        with torch.enable_grad():
            loss = reference(case, x, y)
        ctx.kept = torch.autograd.grad(loss, (x, y))
        return loss.detach()

    @staticmethod
    def backward(ctx, grad_output):
        return None, *(gradient.mul_(grad_output) for gradient in ctx.kept)


def test_who_hands_the_same_gradients_out_again_is_failed(make_case):
    (result,) = judge(make_case(), Rescaled.apply, checks=CHECKS)

    assert result.status == FAIL
    assert "pass 1 of 3" in result.reason


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", ["custom", "reference"])
def test_the_honest_pass(make_case, name, loss, reduction):
    case = make_case(loss, reduction=reduction)

    (result,) = put(case, find_implementation(name), checks=CHECKS)

    assert (result.status, result.reason) == (PASS, "")
