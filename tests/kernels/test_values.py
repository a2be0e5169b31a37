"""Each loss and both its gradients against the float64 oracle, in every layout."""

import pytest
import torch
from torch import Tensor

from losscli.implementations.requests import Answer
from losscli.runs.records import PASS
from losscli.truth.problem import Incoming, Problem
from tests.gradients import assert_right
from tests.handmade import pair
from tests.parameters import naming, square

from .layouts import LAYOUTS
from .losses import DTYPES, MACHINERY, REDUCTIONS, case_of, custom, make, reference, with_grad


def assert_meets_oracle(loss: str, reduction: str, input: Tensor, target: Tensor) -> None:
    """Value, and gradients for an incoming gradient that is not 1."""
    operands = pair(input.detach(), target.detach())
    problem = Problem(case_of(loss, reduction, input, target), operands, excuses=False)
    leaves = (input.detach().requires_grad_(), target.detach().requires_grad_())
    result = custom(loss, reduction)(*leaves)
    incoming = torch.full_like(result, -3.0).detach()
    if reduction == "none":
        incoming = make(result.dtype, str(result.device), seed=1)(tuple(result.shape))
    gradients = torch.autograd.grad(result, leaves, incoming)
    answer = Answer(result.detach(), dict(zip(operands, gradients, strict=True)))
    assert_right(problem, answer, Incoming("", tuple(operands), incoming), allowed=(PASS,))


@pytest.mark.parametrize(("loss", "reduction", "dtype"), square(MACHINERY, REDUCTIONS, DTYPES))
def test_value_and_gradients_are_right_in_every_layout(loss, reduction, dtype, device):
    for name, layout in LAYOUTS.items():
        input, target = layout(make(DTYPES[dtype], device))
        with naming(name):
            assert_meets_oracle(loss, reduction, input, target)


@pytest.mark.parametrize("loss", MACHINERY)
def test_mixed_dtypes_are_promoted_as_pytorch_promotes_them(loss, device):
    for dtypes in (("float16", "float32"), ("float32", "float64"), ("bfloat16", "float16")):
        input = make(DTYPES[dtypes[0]], device)((40, 30)).requires_grad_()
        target = make(DTYPES[dtypes[1]], device, seed=1)((30,)).requires_grad_()
        result, expected = custom(loss)(input, target), reference(loss)(input, target)
        found, due = (torch.autograd.grad(each, (input, target)) for each in (result, expected))
        with naming(dtypes):
            assert result.dtype == expected.dtype
            torch.testing.assert_close(found, due, rtol=2e-2, atol=1e-5)


@pytest.mark.parametrize("loss", MACHINERY)
def test_an_integer_target_is_promoted(loss, device):
    input = make(torch.float32, device)((8, 6))
    target = torch.tensor([1, -1, 1, 1, -1, -1], device=device)
    torch.testing.assert_close(custom(loss)(input, target), reference(loss)(input, target.float()))


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32])
@pytest.mark.parametrize("loss", MACHINERY)
def test_a_scalar_target_is_not_rounded_to_the_dtype_of_the_loss(loss, dtype, device):
    """257 is no bfloat16: a scalar target leaves the loss in the dtype of the input."""
    input = torch.tensor([255.0, -1.0, 0.0, 256.0], dtype=torch.bfloat16, device=device)
    target = torch.tensor(257, dtype=dtype, device=device)
    result = custom(loss, "none")(input, target)
    assert result.dtype == torch.bfloat16
    expected = reference(loss, "none")(input.double(), target.double()).bfloat16()
    torch.testing.assert_close(result, expected, rtol=0, atol=0)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("loss", MACHINERY)
def test_loss_has_the_strides_of_pytorchs(loss, reduction):
    for layout in LAYOUTS.values():
        input, target = layout(make(torch.float32, "cpu"))
        result = custom(loss, reduction)(input, target)
        expected = input - target if reduction == "none" else result.new_empty(())
        assert result.stride() == expected.stride()


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("loss", MACHINERY)
def test_with_grad_gives_what_autograd_gives(loss, reduction, device):
    for name, layout in LAYOUTS.items():
        input, target = layout(make(torch.float32, device))
        leaf = input.detach().requires_grad_()
        expected = custom(loss, reduction)(leaf, target)
        (gradient,) = torch.autograd.grad(expected.sum(), leaf)
        both = with_grad(loss, reduction)(input, target)
        with naming(name):
            torch.testing.assert_close(both[0], expected.detach(), equal_nan=True, rtol=0, atol=0)
            torch.testing.assert_close(both[1], gradient, rtol=1e-6, atol=0)
            assert not both[0].requires_grad


@pytest.mark.parametrize("loss", MACHINERY)
def test_the_number_of_threads_does_not_change_the_bits(loss):
    values = make(torch.float32, "cpu")
    input, target = values((301, 997)), values((997,))
    threads = torch.get_num_threads()
    results = []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            leaf = target.clone().requires_grad_()
            result = custom(loss)(input, leaf)
            results.append((result.detach(), torch.autograd.grad(result, leaf)[0]))
    finally:
        torch.set_num_threads(threads)
    for result, gradient in results[1:]:
        assert torch.equal(result, results[0][0])
        assert torch.equal(gradient, results[0][1])
