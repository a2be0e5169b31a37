"""Operands that are one row for all rows of the input: a class's weight, a common target."""

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from losscli.losses import EVERY_LOSS
from tests.parameters import naming

from .losses import DTYPES, custom

LOSSES = ("binary_cross_entropy_with_pos_weight", "gaussian_nll", "weighted_hinge", "weighted_mse")
"""Losses of three operands."""
ROWS = {"last": [2], "second": [1], "second and last": [1, 2]}
SHAPES = {"few elements": (4, 64), "odd rows": (6, 33), "several blocks": (67, 1032)}


def function(loss: str, reduction: str) -> Callable[..., Tensor]:
    if loss == "gaussian_nll":  # its function refuses a variance of one row, as torch's does
        settings = EVERY_LOSS[loss].resolve({}).values()
        return lambda *operands: torch.ops.losscli.gaussian_nll(*operands, reduction, *settings)
    inner = custom(loss.removeprefix("weighted_"), reduction)
    if not loss.startswith("weighted_"):
        return inner
    return lambda *operands: inner(*operands[:-1], weight=operands[-1])


def operands(shape, rows, dtype, device):
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
    given, full = operands(shape, rows, dtype, device)
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
@pytest.mark.parametrize("loss", LOSSES)
def test_a_row_gives_what_a_full_operand_gives(loss, dtype, device):
    for shape, rows in itertools.product(SHAPES, ROWS):
        with naming(shape, rows):
            assert_rows_are_as_full_operands(loss, SHAPES[shape], ROWS[rows], dtype, device)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("loss", LOSSES)
def test_a_row_gives_what_a_full_operand_gives_of_large_tensors(loss, rows, dtype):
    columns = 16384 + 24
    shape = 2**29 // DTYPES[dtype].itemsize // columns + 2, columns
    assert_rows_are_as_full_operands(loss, shape, ROWS[rows], dtype, "cuda")


@pytest.mark.parametrize("loss", LOSSES)
def test_rows_of_two_lengths_broadcast_as_they_do_in_pytorch(loss, device):
    generator = torch.Generator(device).manual_seed(0)
    shapes = (4, 8, 16), (8, 16), (16,)
    given = [
        torch.empty(shape, device=device).uniform_(0.1, 1, generator=generator) for shape in shapes
    ]
    full = [each.expand(shapes[0]).contiguous() for each in given]
    assert torch.equal(function(loss, "none")(*given), function(loss, "none")(*full))
    torch.testing.assert_close(function(loss, "sum")(*given), function(loss, "sum")(*full))
