"""What holds between losses: at the ends of a parameter, or for transformed operands."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import softplus
from torch.testing import assert_close

from losscli.functional import (
    huber_loss,
    l1_loss,
    log_cosh_loss,
    mse_loss,
    quantile_loss,
    smooth_l1_loss,
    soft_margin_loss,
)

from .losses import make

SHAPE = (37, 101)
Results = tuple[Tensor, Tensor, Tensor]


@pytest.fixture
def pair(device: str) -> tuple[Tensor, Tensor]:
    """Predictions and targets."""
    filled = make(torch.float64, device)
    return filled(SHAPE).requires_grad_(), filled(SHAPE).requires_grad_()


@pytest.fixture
def labels(pair: tuple[Tensor, Tensor]) -> Tensor:
    """Labels of -1 and 1."""
    return pair[1].detach().sign()


def elements(loss: Tensor, *operands: Tensor) -> tuple[Tensor, ...]:
    """Return a loss of no reduction with its gradients."""
    return (loss.detach(), *torch.autograd.grad(loss.sum(), operands))


def test_quantile_one_half_is_half_the_l1_loss(pair) -> None:
    half = elements(quantile_loss(*pair, reduction="none", quantile=0.5), *pair)
    assert_close(half, elements(0.5 * l1_loss(*pair, reduction="none"), *pair))


def test_quantile_and_its_complement_add_up_to_the_l1_loss(pair) -> None:
    low, high = (quantile_loss(*pair, reduction="none", quantile=q) for q in (0.125, 0.875))
    assert_close(elements(low + high, *pair), elements(l1_loss(*pair, reduction="none"), *pair))


def test_mean_quantile_loss_is_least_at_that_quantile_of_the_target(device: str) -> None:
    target = make(torch.float64, device)((1001,))
    candidates = target.sort().values
    losses = quantile_loss(candidates[:, None], target, reduction="none", quantile=0.9).mean(1)
    assert int(losses.argmin()) == 900


def test_huber_with_a_large_delta_is_half_the_squared_error(pair) -> None:
    wide = elements(huber_loss(*pair, reduction="none", delta=100.0), *pair)
    assert_close(wide, elements(0.5 * mse_loss(*pair, reduction="none"), *pair))


def test_huber_with_a_small_delta_approaches_delta_times_the_l1_loss(pair) -> None:
    delta = 2.0**-40
    narrow = elements(huber_loss(*pair, reduction="none", delta=delta) / delta, *pair)
    absolute = elements(l1_loss(*pair, reduction="none"), *pair)
    assert_close(narrow, absolute, rtol=0, atol=delta)


def test_huber_is_delta_times_smooth_l1(pair) -> None:
    huber = elements(huber_loss(*pair, reduction="none", delta=0.7), *pair)
    assert_close(huber, elements(0.7 * smooth_l1_loss(*pair, reduction="none", beta=0.7), *pair))


def test_soft_margin_is_softplus_of_the_negative_product(pair, labels: Tensor) -> None:
    input = pair[0]
    got = elements(soft_margin_loss(input, labels, reduction="none"), input)
    assert_close(got, elements(softplus(-input * labels), input))


def test_soft_margin_is_finite_where_the_exponential_is_not(device: str) -> None:
    logits = torch.tensor([-1e4, -100.0, 100.0, 1e4], device=device)
    for dtype in (torch.float32, torch.float16):
        got = soft_margin_loss(
            logits.to(dtype), torch.ones_like(logits).to(dtype), reduction="none"
        )
        assert_close(got, torch.tensor([1e4, 100.0, 0.0, 0.0], device=device, dtype=dtype))


def test_log_cosh_is_half_the_square_near_zero_and_a_distance_less_log_2_far_away(
    device: str,
) -> None:
    near = torch.tensor([1e-30, -1e-9, 1e-4], device=device, dtype=torch.float64)
    got = log_cosh_loss(near, torch.zeros_like(near), reduction="none")
    assert_close(got, near.square() / 2, rtol=1e-8, atol=0)
    far = torch.tensor([30.0, -1000.0, 1e300], device=device, dtype=torch.float64)
    got = log_cosh_loss(far, torch.zeros_like(far), reduction="none")
    assert_close(got, far.abs() - torch.tensor(2.0).double().log().to(device), rtol=1e-15, atol=0)


def test_log_cosh_has_the_gradient_tanh(pair) -> None:
    _, of_input, of_target = elements(log_cosh_loss(*pair, reduction="none"), *pair)
    slope = torch.tanh(pair[0] - pair[1]).detach()
    assert_close((of_input, of_target), (slope, -slope))
