"""What holds between losses: at the ends of a parameter, or for transformed operands."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from losscli.functional import (
    binary_cross_entropy_with_logits,
    l1_loss,
    log_cosh_loss,
    quantile_loss,
    quantile_loss_with_grad,
    sigmoid_focal_loss,
    soft_margin_loss,
)
from losscli.losses import REDUCTIONS, reduce
from losscli.nn import BCEWithLogitsLoss, QuantileLoss

from .losses import make

SHAPE = (37, 101)


@pytest.fixture
def pair(device):
    filled = make(torch.float64, device)
    return filled(SHAPE).requires_grad_(), filled(SHAPE).requires_grad_()


def elements(loss: Tensor, *operands: Tensor) -> tuple[Tensor, ...]:
    return (loss.detach(), *torch.autograd.grad(loss.sum(), operands))


def test_quantile_and_its_complement_add_up_to_the_l1_loss(pair):
    low, high = (quantile_loss(*pair, reduction="none", quantile=q) for q in (0.125, 0.875))
    assert_close(elements(low + high, *pair), elements(l1_loss(*pair, reduction="none"), *pair))


def test_mean_quantile_loss_is_least_at_that_quantile_of_the_target(device):
    target = make(torch.float64, device)((1001,))
    candidates = target.sort().values
    losses = quantile_loss(candidates[:, None], target, reduction="none", quantile=0.9).mean(1)
    assert int(losses.argmin()) == 900


@pytest.mark.parametrize("target", [(37, 3), (37, 1)])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_several_quantiles_are_those_of_the_columns(reduction, target, device):
    filled, quantiles = make(torch.float64, device), (0.1, 0.5, 0.99)
    leaves = [filled(shape).requires_grad_() for shape in ((37, 3), target, (3,))]
    input, truth, weight = leaves
    columns = truth.expand(37, 3).unbind(1)
    each = [
        quantile_loss(one, other, reduction, quantile, own)
        for one, other, quantile, own in zip(
            input.unbind(1), columns, quantiles, weight.unbind(), strict=True
        )
    ]
    due = torch.stack(each, -1)
    expected = elements(reduce(due, reduction), *leaves)
    for got in (
        quantile_loss(input, truth, reduction, quantiles, weight),
        QuantileLoss(reduction, list(quantiles))(input, truth, weight),
    ):
        assert_close(elements(got, *leaves), expected)
    settings = {"reduction": reduction, "quantile": quantiles, "weight": weight.detach()}
    loss, slope = quantile_loss_with_grad(input.detach(), truth.detach(), **settings)
    assert_close((loss, slope), expected[:2])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_several_quantiles_lose_no_digits_beside_16_bits(dtype, device):
    target = torch.full((8, 1), 1.0, dtype=dtype, device=device)
    input = torch.full((8, 2), 3.0, dtype=dtype, device=device)
    got = quantile_loss(input, target, reduction="none", quantile=[0.999, 0.5])
    due = torch.tensor([0.002, 1.0], device=device).to(dtype).expand(8, 2)
    assert_close(got, due, rtol=2**-8, atol=0)


def test_several_quantiles_of_another_number_than_columns_are_refused(device):
    ones = torch.ones(5, 4, device=device)
    with pytest.raises(ValueError, match=r"3 quantiles need .* but its shape is \[5, 4\]"):
        quantile_loss(ones, ones, quantile=[0.1, 0.5, 0.9])
    for wrong in ([], [0.5, 1.0], [0.0, 0.5]):
        with pytest.raises(ValueError, match="quantile: "):
            quantile_loss(ones, ones, quantile=wrong)
        with pytest.raises(ValueError, match="quantile: "):
            QuantileLoss(quantile=wrong)


def test_soft_margin_is_finite_where_the_exponential_is_not(device):
    logits = torch.tensor([-1e4, -100.0, 100.0, 1e4], device=device)
    for dtype in (torch.float32, torch.float16):
        got = soft_margin_loss(
            logits.to(dtype), torch.ones_like(logits).to(dtype), reduction="none"
        )
        assert_close(got, torch.tensor([1e4, 100.0, 0.0, 0.0], device=device, dtype=dtype))


@pytest.fixture
def probabilities(device):
    """Targets between 0 and 1, with both ends."""
    target = torch.special.ndtr(make(torch.float64, device, seed=1)(SHAPE))
    target[0], target[1] = 0.0, 1.0
    return target.requires_grad_()


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_bce_with_logits_is_torchs_with_a_weight_and_a_pos_weight(
    reduction, pair, probabilities, device
):
    leaves = pair[0], probabilities
    filled = make(torch.float64, device, seed=2)
    beside = {"weight": filled(SHAPE), "pos_weight": filled(SHAPE[1:]).exp()}
    for names in ((), ("weight",), ("pos_weight",), ("weight", "pos_weight")):
        given: dict[str, Any] = {name: beside[name] for name in names}
        theirs = torch.nn.functional.binary_cross_entropy_with_logits
        due = elements(theirs(*leaves, reduction=reduction, **given), *leaves)
        ours = binary_cross_entropy_with_logits(*leaves, reduction=reduction, **given)
        assert_close(elements(ours, *leaves), due)
        module = BCEWithLogitsLoss(reduction=reduction, **given)
        assert_close(elements(module(*leaves), *leaves), due)


def test_bce_with_logits_keeps_the_digits_of_a_logit_that_fits_its_label(device):
    logits = torch.tensor([-100.0, -50.0, -20.0, 20.0, 50.0], device=device)
    labels = torch.tensor([0.0, 0.0, 0.0, 1.0, 1.0], device=device)
    got = binary_cross_entropy_with_logits(logits, labels, reduction="none")
    assert_close(got, (-logits.abs().double()).exp().float(), rtol=1e-6, atol=0)


@pytest.mark.parametrize("alpha", [0.25, -1.0])
@pytest.mark.parametrize("gamma", [2.0, 0.5, 0.0])
def test_focal_is_torchvisions_formula(alpha, gamma, pair, probabilities):
    leaves = input, target = pair[0], probabilities
    p = torch.sigmoid(input)
    entropy = torch.nn.functional.binary_cross_entropy_with_logits(input, target, reduction="none")
    right = p * target + (1 - p) * (1 - target)
    due = entropy * (1 - right) ** gamma
    if alpha >= 0:
        due = due * (alpha * target + (1 - alpha) * (1 - target))
    got = sigmoid_focal_loss(input, target, alpha, gamma)
    assert_close(elements(got, *leaves), elements(due, *leaves))


def test_log_cosh_is_half_the_square_near_zero_and_a_distance_less_log_2_far_away(device):
    near = torch.tensor([1e-30, -1e-9, 1e-4], device=device, dtype=torch.float64)
    got = log_cosh_loss(near, torch.zeros_like(near), reduction="none")
    assert_close(got, near.square() / 2, rtol=1e-8, atol=0)
    far = torch.tensor([30.0, -1000.0, 1e300], device=device, dtype=torch.float64)
    got = log_cosh_loss(far, torch.zeros_like(far), reduction="none")
    assert_close(got, far.abs() - torch.tensor(2.0).double().log().to(device), rtol=1e-15, atol=0)
