"""The softmax of the oracle in float64, beside exact sums and PyTorch's own."""

import math

import pytest
import torch
from torch import Tensor

from losscli.truth.row_oracle import AccurateSums

CLASSES = 50257


def derivative(logits: Tensor, incoming: Tensor) -> Tensor:
    logits = logits.detach().requires_grad_()
    return torch.autograd.grad(torch.log_softmax(logits, -1), logits, incoming)[0]


def test_a_long_sum_of_equal_gradients_keeps_its_digits():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(CLASSES, generator=generator, dtype=torch.float64)
    incoming = torch.full_like(logits, 0.1 / CLASSES)
    exponentials = [math.exp(x) for x in logits.tolist()]
    share = math.fsum(incoming.tolist()) / math.fsum(exponentials)
    other = share * torch.tensor(exponentials, dtype=torch.float64)
    # A probability is off by the rounding of its exponent, up to abs(exponent) ulp.
    exponent = (logits - math.log(math.fsum(exponentials))).abs()
    allowed = (4 + exponent) * incoming.fmax(other) * 2.0**-52

    with AccurateSums():
        found = derivative(logits, incoming)

    assert bool(((found - (incoming - other)).abs() <= allowed).all())


@pytest.mark.parametrize("bad", [[], [-math.inf], [-math.inf] * 7, [math.inf], [math.nan]])
def test_values_and_gradients_are_those_of_pytorch(bad):
    logits = torch.linspace(-3, 3, 7, dtype=torch.float64)
    logits[: len(bad)] = torch.tensor(bad, dtype=torch.float64)
    incoming = torch.linspace(1, 2, 7, dtype=torch.float64)
    value, slope = torch.log_softmax(logits, -1), derivative(logits, incoming)

    with AccurateSums():
        torch.testing.assert_close(logits.log_softmax(-1), value, equal_nan=True)
        torch.testing.assert_close(derivative(logits, incoming), slope, equal_nan=True)
