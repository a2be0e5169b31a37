import itertools

import pytest
import torch
from torch import Tensor

from losscli.losses import LINEAR_LOSSES, LOSSES, ROW_FORMS
from losscli.truth.inputs import make_inputs
from tests import handmade
from tests.parameters import naming

from .losses import MACHINERY, custom, make, reference

EVERY = {**LOSSES, **ROW_FORMS, **LINEAR_LOSSES}
COMPOSED = {name for name, spec in ROW_FORMS.items() if spec.composed_of} | {*LINEAR_LOSSES}


@pytest.mark.parametrize("loss", EVERY)
def test_operand_changed_in_place_before_backward_raises_or_does_not_matter(loss, device):
    spec = EVERY[loss]
    case = handmade.small_case_of(loss, reduction=spec.reductions[0], device=device)
    given = make_inputs(case)

    def gradient(reduction, changed=""):
        operands = {name: each.clone() for name, each in given.items()}
        first = next(iter(operands.values())).requires_grad_()
        result = spec.bound(reduction, case.params)(*operands.values()).sum()
        if changed:
            operands[changed].detach().zero_()
        (found,) = torch.autograd.grad(result, first)
        return found

    for reduction, name in itertools.product(spec.reductions, given):
        with naming(reduction, name):
            message = "modified by an inplace operation"
            if loss not in COMPOSED:
                with pytest.raises(RuntimeError, match=f": {name} has been {message}"):
                    gradient(reduction, changed=name)
                continue
            try:
                found = gradient(reduction, changed=name)
            except RuntimeError as error:
                if message not in str(error):
                    raise
            else:
                torch.testing.assert_close(found, gradient(reduction), rtol=0, atol=0)


def operands_of_computed_gradient(device: str) -> tuple[Tensor, Tensor]:
    """Return operands so large that forward computes the gradient on a CPU, too."""
    values = make(torch.float32, device)
    side = 1100 if device == "cpu" else 40
    return values((side, side)).requires_grad_(), values((side, side))


@pytest.mark.parametrize("loss", MACHINERY)
def test_operand_changed_in_place_raises_where_forward_has_computed_the_gradient(loss, device):
    """Whether that is the one that backward needs, a GPU finds out without the host."""
    input, target = operands_of_computed_gradient(device)
    for again in (False, True):
        result = custom(loss)(input, target)
        if again:
            torch.autograd.grad(result, input, retain_graph=True)
        with torch.no_grad():
            input.mul_(2)
        with pytest.raises(RuntimeError, match="input has been modified by an inplace operation"):
            torch.autograd.grad(result, input)


@pytest.mark.parametrize("incoming", [1.0, 2.0])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("loss", MACHINERY)
def test_operand_of_another_shape_before_backward_raises(loss, reduction, incoming, device):
    input = torch.zeros(4, device=device, requires_grad=True)
    result = custom(loss, reduction)(input, torch.zeros((), device=device))
    input.data = torch.ones(7, device=device)
    with pytest.raises(RuntimeError, match=r"input had the shape \[4\].*has the shape \[7\]"):
        (incoming * result.sum()).backward()


@pytest.mark.parametrize("transposed", [True, False], ids=["other strides", "another address"])
@pytest.mark.parametrize("incoming", [1.0, 2.0])
@pytest.mark.parametrize("loss", MACHINERY)
def test_the_gradient_is_that_of_the_operands_in_backward(loss, incoming, transposed, device):
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
def test_the_same_memory_with_other_strides_gives_the_gradient_of_what_it_is_then(loss, device):
    input, target = operands_of_computed_gradient(device)
    leaf = input.detach().t().clone().requires_grad_()
    (expected,) = torch.autograd.grad(reference(loss)(leaf, target), leaf)
    result = custom(loss)(input, target)
    input.data = input.data.t()
    (gradient,) = torch.autograd.grad(result, input)
    torch.testing.assert_close(gradient, expected)


@pytest.mark.parametrize("loss", MACHINERY)
def test_operand_of_another_dtype_before_backward_gives_the_right_gradient(loss, device):
    values = make(torch.float32, device)
    input, target = values((40, 30)).requires_grad_(), values((40, 30))
    result = custom(loss)(input, target)
    input.data = input.data.double()
    result.backward()
    (expected,) = torch.autograd.grad(reference(loss)(input, target), input)
    torch.testing.assert_close(input.grad, expected, check_dtype=False)
