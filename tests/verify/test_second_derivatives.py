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


def test_second_derivatives_of_zero_fail(make_case):
    (result,) = judge(make_case("mse"), "no curvature", checks=CHECKS)

    assert result.status == FAIL
    assert result.reason.startswith("of the input: expected terms up to")


def test_wrong_sign_fails_with_its_index(make_case):
    (result,) = judge(make_case("mse"), lambda case, x, y: Curved.apply(x, y), checks=CHECKS)

    assert result.status == FAIL
    assert "of the input: expected" in result.reason


def test_implementation_without_second_derivatives_is_skipped(make_case):
    class Once(torch.autograd.Function):
        @staticmethod
        def forward(ctx, input, target):
            return (input - target).sum()

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, grad_output):
            return grad_output.expand(8, 24), grad_output.expand(8, 24)

    case = make_case("mse", shape=(8, 24))
    (result,) = judge(case, lambda case, x, y: Once.apply(x, y), checks=CHECKS)

    assert result.status == SKIPPED
    assert result.reason == "no second derivatives: its gradients have no history"


def test_implementation_that_raises_for_second_derivatives_is_skipped(make_case):
    def stubborn(case, input, target):
        loss = reference(case, input, target)
        loss.register_hook(refuse)
        return loss

    def refuse(grad):
        if grad.requires_grad:
            raise NotImplementedError("once is enough")

    (result,) = judge(make_case("mse"), stubborn, checks=CHECKS)

    assert result.status == SKIPPED
    assert result.reason == "no second derivatives: raised NotImplementedError: once is enough"


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
