"""What a person does to operands between forward and backward, behind autograd's back."""

from __future__ import annotations

import pytest
import torch

from .losses import NAMES, custom, make, reference


@pytest.mark.parametrize("incoming", [1.0, 2.0])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("loss", NAMES)
def test_another_shape_is_an_error(loss: str, reduction: str, incoming: float, device: str) -> None:
    input = torch.zeros(4, device=device, requires_grad=True)
    result = custom(loss, reduction)(input, torch.zeros((), device=device))
    input.data = torch.ones(7, device=device)
    with pytest.raises(RuntimeError, match=r"input had the shape \[4\].*has the shape \[7\]"):
        (incoming * result.sum()).backward()


@pytest.mark.parametrize("incoming", [1.0, 2.0])
@pytest.mark.parametrize("loss", NAMES)
def test_the_same_shape_with_other_strides(loss: str, incoming: float, device: str) -> None:
    values = make(torch.float32, device)
    first, other, target = values((40, 30)), values((30, 40)).t(), values((40, 30))
    gradients = []
    for function in (custom(loss), reference(loss)):
        input = first.clone().requires_grad_()
        result = function(input, target)
        input.data = other
        gradients.append(torch.autograd.grad(incoming * result, input)[0])
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("incoming", [1.0, 2.0])
@pytest.mark.parametrize("loss", NAMES)
def test_the_same_form_at_another_address(loss: str, incoming: float, device: str) -> None:
    values = make(torch.float32, device)
    first, other, target = values((40, 30)), values((40, 30)), values((40, 30))
    gradients = []
    for function in (custom(loss), reference(loss)):
        input = first.clone().requires_grad_()
        result = function(input, target)
        input.data = other
        gradients.append(torch.autograd.grad(incoming * result, input)[0])
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("loss", NAMES)
def test_another_dtype(loss: str, device: str) -> None:
    values = make(torch.float32, device)
    input, target = values((40, 30)).requires_grad_(), values((40, 30))
    result = custom(loss)(input, target)
    input.data = input.data.double()
    (gradient,) = torch.autograd.grad(result, input)
    (expected,) = torch.autograd.grad(reference(loss)(input, target), input)
    torch.testing.assert_close(gradient, expected, check_dtype=False)
