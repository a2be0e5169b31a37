import itertools
import math

import pytest
import torch
from torch import Tensor

from losscli.implementations.requests import Answer
from losscli.runs.records import PASS
from losscli.truth.problem import Problem
from losscli.truth.setup import Incoming
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
