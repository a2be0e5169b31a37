import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from losscli import functional, nn
from losscli.losses import EVERY_LOSS, LOSSES, REDUCTIONS
from tests.parameters import naming

from .losses import DTYPES, MACHINERY, PARAMETERS, custom

BY_WEIGHTS = ("l1", "mse")
"""The losses whose mean PyTorch divides by the sum of the weights."""
SHAPE = (5, 7)
WEIGHTS = [(5, 7), (7,), (5, 1), (1, 7), ()]


def operands(loss: str, weight: tuple[int, ...] = SHAPE, dtype=torch.float32, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    x, y = (torch.randn(SHAPE, generator=generator, dtype=torch.float64) for _ in range(2))
    y = y.sign() if loss == "hinge" else y
    w = torch.rand(weight, generator=generator, dtype=torch.float64) + 0.25
    return tuple(each.to(dtype).requires_grad_() for each in (x, y, w))


def loss_of(loss: str):
    return LOSSES[loss].loss


def by_hand(loss: str, x: Tensor, y: Tensor, w: Tensor, reduction: str) -> Tensor:
    elements = LOSSES[loss].reference(x, y, reduction="none", **PARAMETERS[loss]) * w
    if reduction == "none":
        return elements
    if reduction == "sum":
        return elements.sum()
    count = w.expand(elements.shape).sum() if loss in BY_WEIGHTS else elements.numel()
    return elements.sum() / count


@pytest.mark.parametrize("loss", MACHINERY)
def test_weight_multiplies_each_element_and_has_a_gradient(loss):
    for reduction, weight in itertools.product(REDUCTIONS, WEIGHTS):
        x, y, w = leaves = operands(loss, weight)
        got = loss_of(loss)(x, y, reduction=reduction, weight=w, **PARAMETERS[loss])
        due = by_hand(loss, x, y, w, reduction)
        coming = torch.linspace(-2, 3, due.numel()).view(due.shape)
        found, expected = (torch.autograd.grad(each, leaves, coming) for each in (got, due))
        with naming(reduction, weight):
            torch.testing.assert_close((got, *found), (due, *expected))


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("loss", ["huber", "l1", "mse"])
def test_loss_with_a_weight_is_torchs(loss, reduction):
    torchs: Any = getattr(torch.nn.functional, f"{loss}_loss")
    if "weight" not in torchs.__annotations__:
        pytest.skip(f"this torch has no weight of {loss}_loss")
    x, y, w = operands(loss)
    got = loss_of(loss)(x, y, reduction=reduction, weight=w)
    torch.testing.assert_close(got, torchs(x, y, reduction=reduction, weight=w))


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("loss", MACHINERY)
def test_with_grad_and_modules_take_a_weight(loss, reduction):
    x, y, w = operands(loss, (7,))
    settings = {"reduction": reduction, **PARAMETERS[loss]}
    due = loss_of(loss)(x, y, weight=w, **settings)
    (slope,) = torch.autograd.grad(due, x, torch.full_like(due, 3.0))
    with torch.no_grad():
        got, gradient = LOSSES[loss].loss_with_grad(x, y, weight=w, grad_output=3.0, **settings)
    module = getattr(nn, LOSSES[loss].module.__name__)(**settings)
    torch.testing.assert_close(got, due)
    torch.testing.assert_close(gradient, slope)
    assert torch.equal(module(x, y, w), due)


def test_mean_by_weights_does_not_overflow_where_its_sums_do():
    x, w = (torch.full((64, 64), each, dtype=torch.float16) for each in (100.0, 16.0))
    assert (x.square() * w).sum().isinf()
    mean = functional.mse_loss(x / 10, torch.zeros_like(x), weight=w)
    assert mean.dtype == torch.float16
    assert mean == 100.0


def test_weights_of_zero_make_nan_of_a_mean_and_of_an_infinite_loss_as_in_torch():
    x, y, _ = operands("mse")
    assert functional.mse_loss(x, y, weight=torch.zeros(SHAPE)).isnan()
    x, w = torch.tensor([math.inf, 1.0]), torch.tensor([0.0, 2.0])
    got = functional.mse_loss(x, torch.zeros(2), reduction="none", weight=w)
    assert (bool(got[0].isnan()), got[1].item()) == (True, 2.0)


@pytest.mark.parametrize("dtype", [torch.int64, torch.float64, torch.bfloat16])
def test_weights_of_other_dtypes_are_promoted(dtype):
    x, y, _ = operands("mse")
    w = torch.tensor([0, 1, 2, 1, 0, 3, 1]).to(dtype)
    got = functional.mse_loss(x, y, weight=w)
    assert got.dtype == torch.promote_types(torch.float32, dtype)
    torch.testing.assert_close(got, by_hand("mse", x, y, w.to(got.dtype), "mean").to(got.dtype))


@pytest.mark.parametrize("loss", MACHINERY)
def test_operators_pass_opcheck(loss):
    x, y, w = operands(loss, (7,))
    operator = getattr(torch.ops.losscli, f"weighted_{loss}").default
    torch.library.opcheck(operator, (x, y, w, "mean", *PARAMETERS[loss].values()))


THREE = ("binary_cross_entropy_with_pos_weight", "gaussian_nll", "weighted_hinge", "weighted_mse")
"""Losses of three operands."""
ROWS = {"last": [2], "second": [1], "second and last": [1, 2]}
SIZES = {"few elements": (4, 64), "odd rows": (6, 33), "several blocks": (67, 1032)}


def function(loss: str, reduction: str) -> Callable[..., Tensor]:
    if loss == "gaussian_nll":  # its function refuses a variance of one row, as torch's does
        settings = EVERY_LOSS[loss].resolve({}).values()
        return lambda *operands: torch.ops.losscli.gaussian_nll(*operands, reduction, *settings)
    inner = custom(loss.removeprefix("weighted_"), reduction)
    if not loss.startswith("weighted_"):
        return inner
    return lambda *operands: inner(*operands[:-1], weight=operands[-1])


def of_rows_and_full(shape, rows, dtype, device):
    """Return operands of which some are rows, and the same with all of full size."""
    generator = torch.Generator(device).manual_seed(0)
    given = [
        torch.empty(shape[1:] if k in rows else shape, dtype=DTYPES[dtype], device=device).uniform_(
            0.1, 1, generator=generator
        )
        for k in range(3)
    ]
    return given, [each.expand(shape).contiguous() for each in given]


def assert_rows_are_as_full_operands(loss, shape, rows, dtype, device):
    given, full = of_rows_and_full(shape, rows, dtype, device)
    assert torch.equal(function(loss, "none")(*given), function(loss, "none")(*full))
    mean, summed = function(loss, "mean"), function(loss, "sum")
    expected = mean(*(each.double() for each in full))
    torch.testing.assert_close(mean(*given).double(), expected, rtol=1e-2, atol=0)
    for incoming in (1.0, 0.5):
        gradients = [
            torch.autograd.grad(incoming * summed(leaf, *others), leaf)[0]
            for leaf, *others in (
                (each[0].clone().requires_grad_(), *each[1:]) for each in (given, full)
            )
        ]
        assert torch.equal(*gradients)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("loss", THREE)
def test_a_row_gives_what_a_full_operand_gives(loss, dtype, device):
    for shape, rows in itertools.product(SIZES, ROWS):
        with naming(shape, rows):
            assert_rows_are_as_full_operands(loss, SIZES[shape], ROWS[rows], dtype, device)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("loss", THREE)
def test_a_row_gives_what_a_full_operand_gives_of_large_tensors(loss, rows, dtype):
    columns = 16384 + 24
    shape = 2**29 // DTYPES[dtype].itemsize // columns + 2, columns
    assert_rows_are_as_full_operands(loss, shape, ROWS[rows], dtype, "cuda")


@pytest.mark.parametrize("loss", THREE)
def test_rows_of_two_lengths_broadcast_as_they_do_in_pytorch(loss, device):
    generator = torch.Generator(device).manual_seed(0)
    shapes = (4, 8, 16), (8, 16), (16,)
    given = [
        torch.empty(shape, device=device).uniform_(0.1, 1, generator=generator) for shape in shapes
    ]
    full = [each.expand(shapes[0]).contiguous() for each in given]
    assert torch.equal(function(loss, "none")(*given), function(loss, "none")(*full))
    torch.testing.assert_close(function(loss, "sum")(*given), function(loss, "sum")(*full))
