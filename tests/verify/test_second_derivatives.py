"""The check of the derivatives of the gradients."""

import itertools

import pytest
import torch

from losscli.cases.axes import DTYPES
from losscli.implementations import find_implementation
from losscli.losses import LOSSES
from losscli.runs.records import FAIL, SKIPPED
from tests.machinery import MACHINERY
from tests.parameters import naming
from tests.verify.judging import judge, put, reference

CHECKS = ("second_derivatives",)


class Curved(torch.autograd.Function):
    """mse of the right gradient, whose own gradient has the wrong sign."""

    @staticmethod
    def forward(ctx, input, target):
        ctx.save_for_backward(input, target)
        return ((input - target) ** 2).mean()

    @staticmethod
    def backward(ctx, grad_output):
        input, target = ctx.saved_tensors
        gradient = 2 * (input - target) / input.numel() * grad_output
        turned = 2 * gradient.detach() - gradient
        return turned, -turned


def test_second_derivatives_of_zero_or_of_the_wrong_sign_fail(make_case):
    for wrong, told in (
        ("no curvature", "of the input: expected terms up to"),
        (lambda case, x, y: Curved.apply(x, y), "of the input: expected"),
    ):
        (result,) = judge(make_case("mse"), wrong, checks=CHECKS)
        assert result.status == FAIL
        assert told in result.reason


class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input, target):
        return (input - target).sum()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_output):
        return grad_output.expand(8, 24), grad_output.expand(8, 24)


def stubborn(case, input, target):
    def refuse(grad):
        if grad.requires_grad:
            raise NotImplementedError("once is enough")

    loss = reference(case, input, target)
    loss.register_hook(refuse)
    return loss


def test_implementation_without_second_derivatives_is_skipped_with_the_reason(make_case):
    for function, why in (
        (lambda case, x, y: Once.apply(x, y), "its gradients have no history"),
        (stubborn, "raised NotImplementedError: once is enough"),
    ):
        (result,) = judge(make_case("mse", shape=(8, 24)), function, checks=CHECKS)
        assert result.status == SKIPPED
        assert result.reason == f"no second derivatives: {why}"


@pytest.mark.parametrize("loss", MACHINERY)
def test_pytorchs_own_passes_next_to_a_kink(make_case, loss):
    for dtype, name in itertools.product(DTYPES, ["reference", "functional"]):
        with naming(dtype, name):
            params = {p.name: 0.1 for p in LOSSES[loss].parameters}
            case = make_case(loss, dtype=dtype, params=params, distribution="boundary")
            implementation = find_implementation(name)

            results = put(case, implementation, checks=CHECKS)

            assert FAIL not in {result.status for result in results}
            assert {result.code for result in results if result.reason} <= {
                "no_worse_than_torch",
                "not_applicable",
            }
