"""Digits of cross entropy's gradient that verify does not ask for.

It measures an element at its largest term, beside which the gradient of a row that is nearly right
is small. The kernels promise more on a CPU: each element is right within a few of its own units in
the last place. Rows of 131 classes are walked in panels, those of 1031 one by one.
"""

import pytest
import torch
from torch import Tensor

from losscli.functional import cross_entropy

ULP = 4 * torch.finfo(torch.float32).eps
"""An exponential within 1.1 units in the last place, a factor and a product: four at most."""
SHAPES = ((40, 131), (5, 1031))


def gradient_of(logits: Tensor, target: Tensor) -> Tensor:
    leaf = logits.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(cross_entropy(leaf, target, reduction="sum"), leaf)
    return gradient


def make(shape: tuple[int, int], above: float) -> tuple[Tensor, Tensor]:
    """Return logits of which that of the target is above the others, and the targets."""
    logits = torch.randn(shape, generator=torch.Generator().manual_seed(1)) * 3 - 7.3
    target = torch.arange(shape[0]) * 7 % shape[1]
    return logits.scatter(1, target[:, None], float(logits.max()) + above), target


@pytest.mark.parametrize("above", [4.0, 17.0, 30.0])
@pytest.mark.parametrize("shape", SHAPES)
def test_gradient_of_the_target_keeps_its_digits_where_the_row_is_confident(shape, above):
    logits, target = make(shape, above)
    top = logits.gather(1, target[:, None])
    powers = (logits.double() - top.double()).exp().scatter(1, target[:, None], 0.0)
    others = powers.sum(1)
    found = gradient_of(logits, target).gather(1, target[:, None]).squeeze(1)
    torch.testing.assert_close(found.double(), -others / (1 + others), rtol=ULP, atol=0)


@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_of_unlikely_classes_keep_their_digits(shape):
    logits, target = make(shape, 6.1)
    top = logits.gather(1, target[:, None])
    powers = (logits.double() - top.double()).exp()
    due = powers / powers.sum(1, keepdim=True)
    found = gradient_of(logits, target)
    unlikely = torch.ones_like(found, dtype=torch.bool).scatter(1, target[:, None], False)
    torch.testing.assert_close(found.double()[unlikely], due[unlikely], rtol=ULP, atol=0)
