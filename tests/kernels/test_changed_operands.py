"""Operands changed through `.data` between forward and backward."""

from __future__ import annotations

import pytest
import torch

from .losses import MACHINERY, custom, make, reference


@pytest.mark.parametrize("incoming", [1.0, 2.0])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("loss", MACHINERY)
def test_operand_of_another_shape_before_backward_raises(
    loss: str, reduction: str, incoming: float, device: str
) -> None:
    input = torch.zeros(4, device=device, requires_grad=True)
    result = custom(loss, reduction)(input, torch.zeros((), device=device))
    input.data = torch.ones(7, device=device)
    with pytest.raises(RuntimeError, match=r"input had the shape \[4\].*has the shape \[7\]"):
        (incoming * result.sum()).backward()


@pytest.mark.parametrize("transposed", [True, False], ids=["other strides", "another address"])
@pytest.mark.parametrize("incoming", [1.0, 2.0])
@pytest.mark.parametrize("loss", MACHINERY)
def test_the_gradient_is_that_of_the_operands_in_backward(
    loss: str, incoming: float, transposed: bool, device: str
) -> None:
    """It is so for the functions of torch.nn.functional, whatever the incoming gradient is."""
    values = make(torch.float32, device)
    other = values((30, 40)).t() if transposed else values((40, 30))
    input, target = values((40, 30)).requires_grad_(), values((40, 30))
    result = custom(loss)(input, target)
    input.data = other.clone(memory_format=torch.preserve_format)
    (gradient,) = torch.autograd.grad(incoming * result, input)
    leaf = other.requires_grad_()
    (expected,) = torch.autograd.grad(incoming * reference(loss)(leaf, target), leaf)
    torch.testing.assert_close(gradient, expected)


@pytest.mark.parametrize("loss", MACHINERY)
def test_the_same_memory_with_other_strides_gives_the_gradient_of_what_it_is_then(
    loss: str, device: str
) -> None:
    values = make(torch.float32, device)
    side = 1100 if device == "cpu" else 40  # on a CPU few elements are not written ahead
    input, target = values((side, side)).requires_grad_(), values((side, side))
    leaf = input.detach().t().clone().requires_grad_()
    (expected,) = torch.autograd.grad(reference(loss)(leaf, target), leaf)
    result = custom(loss)(input, target)
    input.data = input.data.t()
    (gradient,) = torch.autograd.grad(result, input)
    torch.testing.assert_close(gradient, expected)


@pytest.mark.parametrize("loss", MACHINERY)
def test_operand_of_another_dtype_before_backward_gives_the_right_gradient(
    loss: str, device: str
) -> None:
    values = make(torch.float32, device)
    input, target = values((40, 30)).requires_grad_(), values((40, 30))
    result = custom(loss)(input, target)
    input.data = input.data.double()
    result.backward()
    (expected,) = torch.autograd.grad(reference(loss)(input, target), input)
    torch.testing.assert_close(input.grad, expected, check_dtype=False)
