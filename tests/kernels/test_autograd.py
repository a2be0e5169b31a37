"""Autograd in training code: retained graphs, upstream gradients, hooks on saved tensors."""

import itertools

import pytest
import torch

from losscli.truth.tolerances import ELEMENT_ULP
from tests.parameters import naming

from .losses import DTYPES, MACHINERY, REDUCTIONS, close, custom, make, reference


@pytest.mark.parametrize("loss", MACHINERY)
def test_a_retained_graph_gives_the_same_gradient_again(loss, device):
    """Whatever an optimiser has done to the gradients before."""
    values = make(torch.float32, device)
    input, target = values((33, 21)).requires_grad_(), values((21,)).requires_grad_()
    for reduction in REDUCTIONS:
        result = custom(loss, reduction)(input, target).sum()
        first = torch.autograd.grad(result, (input, target), retain_graph=True)
        kept = [gradient.clone() for gradient in first]
        for gradient in first:
            gradient.zero_()
        tripled = torch.autograd.grad(3 * result, (input, target), retain_graph=True)
        second = torch.autograd.grad(result, (input, target), retain_graph=True)
        assert all(map(torch.equal, second, kept))
        second[0].mul_(7)
        last = torch.autograd.grad(result, (input, target))
        assert all(map(torch.equal, last, kept))
        close(tripled, tuple(3 * gradient for gradient in kept))


@pytest.mark.parametrize("loss", MACHINERY)
def test_backward_through_a_released_graph_raises(loss, device):
    input = make(torch.float32, device)((5,)).requires_grad_()
    result = custom(loss)(input, torch.ones_like(input))
    result.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        result.backward()


@pytest.mark.parametrize("loss", MACHINERY)
def test_gradient_is_right_for_any_incoming_gradient(loss, device):
    factors = (1.0, -3.0, 32768.0, 0.0, float("inf"), float("nan"))
    for dtype, incoming in itertools.product(DTYPES.values(), factors):
        values, limits = make(dtype, device), torch.finfo(dtype)
        leaves = values((50, 40)).requires_grad_(), values((50, 40)).requires_grad_()
        result = custom(loss)(*leaves)
        got = torch.autograd.grad(result, leaves, torch.full_like(result, incoming))
        truths = tuple(leaf.detach().double().requires_grad_() for leaf in leaves)
        factor = torch.full_like(result, incoming).double()
        expected = torch.autograd.grad(reference(loss)(*truths), truths, factor)
        with naming(dtype, incoming):
            torch.testing.assert_close(
                got,
                tuple(gradient.to(dtype) for gradient in expected),
                rtol=ELEMENT_ULP * limits.eps,
                atol=limits.smallest_normal * limits.eps * 2,
                equal_nan=True,
            )


@pytest.mark.parametrize("loss", MACHINERY)
def test_nothing_is_recorded_where_no_gradient_is_wanted(loss, device):
    input = make(torch.float32, device)((5,)).requires_grad_()
    with torch.no_grad():
        assert not custom(loss)(input, torch.ones_like(input)).requires_grad
    with torch.inference_mode():
        assert custom(loss)(input.detach(), torch.ones_like(input)).is_inference()


@pytest.mark.parametrize("loss", MACHINERY)
def test_gradient_with_a_graph_beside_an_integer_target_is_right(loss, device):
    input = make(torch.float64, device)((6, 4)).requires_grad_()
    target = torch.tensor([1, -1, 1, -1], device=device)
    (got,) = torch.autograd.grad(custom(loss)(input, target), input, create_graph=True)
    (expected,) = torch.autograd.grad(reference(loss)(input, target.double()), input)
    torch.testing.assert_close(got.detach(), expected)


@pytest.mark.parametrize("loss", MACHINERY)
def test_hooks_on_saved_tensors_may_change_their_strides(loss, device):
    values = make(torch.float64, device)
    input, target = values((4, 3)).requires_grad_(), values((4, 3)).t()
    hooks = torch.autograd.graph.saved_tensors_hooks(
        lambda tensor: tensor.contiguous(), lambda tensor: tensor
    )
    with hooks:
        result = custom(loss)(input.t(), target)
    (got,) = torch.autograd.grad(2 * result, input)
    (expected,) = torch.autograd.grad(2 * reference(loss)(input.t(), target), input)
    torch.testing.assert_close(got, expected)
