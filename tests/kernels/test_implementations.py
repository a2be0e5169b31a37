"""The strategies are implementations with the same loss and gradient."""

import itertools

import pytest
import torch

from losscli.implementations import IMPLEMENTATIONS, STRATEGIES, find_implementation
from tests.parameters import naming

from .losses import MACHINERY, case_of, make, reference


def test_each_strategy_is_an_implementation():
    named = [name for name in IMPLEMENTATIONS if name.startswith("custom:")]
    assert named == [f"custom:{strategy}" for strategy in STRATEGIES]


@pytest.mark.parametrize("loss", MACHINERY)
def test_a_strategy_computes_the_loss_and_its_gradient(device, loss):
    filled = make(torch.float32, device)
    input, target = filled((300, 1001)).requires_grad_(), filled((300, 1001))
    for reduction, strategy in itertools.product(("mean", "sum"), STRATEGIES):
        case = case_of(loss, reduction, input, target)
        value = find_implementation(f"custom:{strategy}").bind(case)(input, target)
        expected = reference(loss, reduction)(input.double(), target.double())
        (gradient,) = torch.autograd.grad(value, input)
        (truth,) = torch.autograd.grad(expected, input)
        with naming(reduction, strategy):
            torch.testing.assert_close(value.double(), expected, rtol=3e-7, atol=0.0)
            torch.testing.assert_close(gradient, truth, rtol=1e-6, atol=0.0)


@pytest.mark.parametrize("loss", MACHINERY)
def test_without_a_reduction_there_is_nothing_to_finish(loss):
    case = case_of(loss, "none", torch.ones(2, 2), torch.ones(2, 2))
    for strategy in STRATEGIES:
        reason = find_implementation(f"custom:{strategy}").unavailable(case)
        assert reason.text == "without a reduction there is no sum to finish"
