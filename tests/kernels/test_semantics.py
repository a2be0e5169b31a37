"""Special values as in PyTorch: kinks, NaN, infinities, subnormals, ends of the range."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from .losses import DTYPES, custom, reference

SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, 1.5, math.inf, -math.inf, math.nan, 1e-40, 3e38, -3e38)


def special_pairs(dtype: torch.dtype, device: str) -> tuple[Tensor, Tensor]:
    pairs = torch.tensor(list(itertools.product(SPECIAL, SPECIAL)), dtype=torch.float64)
    # Twice, so that whole vectors and their tails both meet each pair.
    pairs = torch.cat([pairs, pairs])
    return pairs[:, 0].to(device, dtype), pairs[:, 1].to(device, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("loss", "parameters"),
    [
        ("smooth_l1", {"beta": 0.5}),
        ("smooth_l1", {"beta": 1.0}),
        ("smooth_l1", {"beta": 0.0}),
        ("mse", {}),
        ("hinge", {"margin": 1.0}),
        # Not 0: whether a product that underflows is negative is beyond float32, PyTorch's as well.
        ("hinge", {"margin": 0.25}),
        ("hinge", {"margin": -0.5}),
    ],
)
def test_special_values_match_the_float64_reference(loss, parameters, dtype, device):
    operands = special_pairs(DTYPES[dtype], device)
    leaves = tuple(operand.clone().requires_grad_() for operand in operands)
    truths = tuple(operand.double().requires_grad_() for operand in operands)
    result = custom(loss, "none", **parameters)(*leaves)
    truth = reference(loss, "none", **parameters)(*truths)
    gradients = torch.autograd.grad(result.sum(), leaves)
    true_gradients = torch.autograd.grad(truth.sum(), truths)
    for got, expected in zip((result, *gradients), (truth, *true_gradients), strict=True):
        expected = expected.to(got.dtype)
        torch.testing.assert_close(
            got, expected, equal_nan=True, rtol=4 * torch.finfo(got.dtype).eps, atol=1e-44
        )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_16_bit_value_is_read_and_written_exactly(dtype, device):
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int16)
    values = bits.view(DTYPES[dtype]).to(device)
    # With target 0, margin 0 and minus one the hinge hands its input through or gives zero.
    result = custom("hinge", "none", margin=0.0)(values, -torch.ones_like(values))
    expected = torch.clamp(values.double(), min=0).to(values.dtype)
    torch.testing.assert_close(result, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_beta_whose_reciprocal_overflows_gives_right_results(dtype, device):
    beta = 1e-40 if dtype == "float32" else 1e-310
    input = torch.tensor([0.0, 1.0, -2.0], dtype=DTYPES[dtype], device=device).requires_grad_()
    result = custom("smooth_l1", "none", beta=beta)(input, torch.zeros_like(input))
    assert result.tolist() == [0, 1, 2]
    assert torch.autograd.grad(result.sum(), input)[0].tolist() == [0, 1, -1]


def test_a_margin_beyond_float32_is_infinite(device):
    ones = torch.ones(5, device=device)
    assert custom("hinge", margin=1e300)(ones, ones) == math.inf


def test_gradient_whose_double_overflows_is_finite(device):
    input = torch.full((1024,), 2e38, device=device).requires_grad_()
    result = custom("mse")(input, torch.zeros_like(input))
    (gradient,) = torch.autograd.grad(result, input)
    torch.testing.assert_close(gradient, torch.full_like(input, 4e38 / 1024))


def test_a_sum_beyond_float16_is_infinite(device):
    large = torch.full((1000,), 200.0, dtype=torch.float16, device=device)
    assert custom("mse", "sum")(large, -large).isinf()
    assert custom("smooth_l1", "mean", beta=1.0)(large, -large) == 399.5


def test_a_float32_sum_of_2_to_the_24_ones_is_exact(device):
    ones = torch.ones(2**24 + 3, device=device)
    assert custom("mse", "sum")(ones, torch.zeros((), device=device)) == 2**24 + 4
    assert custom("mse", "mean")(ones, torch.zeros((), device=device)) == 1
