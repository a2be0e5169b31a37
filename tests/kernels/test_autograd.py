import itertools
from typing import Any

import pytest
import torch

from docs import hidden_states, language_model
from docs.training import data, train
from losscli import nn
from losscli.losses import LOSSES
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


STEPS = 40
OF_ANY_NUMBERS = [
    spec.module.__name__
    for spec in LOSSES.values()
    if hasattr(torch.nn, spec.module.__name__) and all(d.is_real for d in spec.domains.values())
]


@pytest.mark.parametrize("name", OF_ANY_NUMBERS)
def test_both_losses_train_the_same_model(name):
    modules: tuple[Any, Any] = nn, torch.nn
    losses, models = zip(
        *(list(train(getattr(each, name)(), STEPS))[-1] for each in modules), strict=True
    )
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    for own, torchs in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(own, torchs, rtol=1e-4, atol=1e-4)


def test_training_has_learned_something():
    losses = [loss for loss, _ in itertools.islice(train(nn.SmoothL1Loss()), STEPS)]
    assert losses[-1] < 0.9 * losses[0]
    inputs, targets = data()
    assert inputs.shape == (4096, 8)
    assert targets.shape == (4096, 1)


def test_both_cross_entropies_train_the_same_language_model():
    both = zip(
        language_model.train(nn.CrossEntropyLoss(), STEPS),
        language_model.train(torch.nn.CrossEntropyLoss(), STEPS),
        strict=True,
    )
    losses = [(own, torchs) for (own, _), (torchs, _) in both]
    assert [own for own, _ in losses] == pytest.approx([torchs for _, torchs in losses], rel=1e-4)
    assert losses[-1][0] < 0.7 * losses[0][0]


def test_hidden_states_train_the_same_model_as_logits_in_a_third_of_the_memory():
    both = zip(
        hidden_states.steps(hidden_states.of_hidden_states),
        hidden_states.steps(hidden_states.of_logits),
        strict=True,
    )
    losses = [(own(), torchs()) for own, torchs in itertools.islice(both, 8)]
    assert [own for own, _ in losses] == pytest.approx([torchs for _, torchs in losses], rel=1e-4)
    assert losses[-1][0] < losses[0][0]
    own, torchs = map(hidden_states.peak, (hidden_states.of_hidden_states, hidden_states.of_logits))
    assert own < torchs / 3
