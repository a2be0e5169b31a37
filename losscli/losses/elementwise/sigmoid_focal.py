"""Focal loss of logits."""

from __future__ import annotations

import math

from losscli.machine.pytorch import Tensor, torch

from .. import aten
from ..calling import Arguments
from ..domain import PROBABILITIES
from ..fields import Operand, Parameter, Terms, Tolerance
from ..formulas import prediction, reduced, torchs_own
from ..making import element_loss


def _elements(input: Tensor, target: Tensor, *, alpha: float, gamma: float) -> Tensor:
    """Torchvision's loss without cancellation."""
    positive = input > 0
    linear = input * (positive.to(input.dtype) - target)
    beyond = torch.where(positive, -input, input)
    entropy = linear + torch.log1p(torch.exp(beyond))
    # The smaller probability keeps its digits, and so do the derivatives.
    small = torch.sigmoid(beyond)
    miss = small * torch.where(positive, target, 1 - target)
    miss = miss + (1 - small) * torch.where(positive, 1 - target, target)
    # Negative for a target far outside [0, 1]: some powers of it would be numbers.
    miss = torch.where(miss < 0, torch.full_like(miss, math.nan), miss)
    loss = entropy * miss**gamma
    if alpha >= 0:
        loss = loss * (alpha * target + (1 - alpha) * (1 - target))
    return loss


def _as_written(input: Tensor, target: Tensor, *, alpha: float, gamma: float) -> Tensor:
    """Torchvision's loss, in which easy examples lose their digits."""
    p = torch.sigmoid(input)
    entropy = aten.binary_cross_entropy_with_logits(input, target, reduction="none")
    right = p * target + (1 - p) * (1 - target)
    loss = entropy * (1 - right) ** gamma
    if alpha >= 0:
        loss = (alpha * target + (1 - alpha) * (1 - target)) * loss
    return loss


def _terms(input: Tensor, target: Tensor, *, alpha: float, gamma: float) -> dict[str, Tensor]:
    """The derivatives of the cross entropy, of the power and of the class weight."""
    p, q = torch.sigmoid(input), torch.sigmoid(-input)
    nearer = (input > 0).to(input.dtype)
    entropy = input * (nearer - target) + torch.log1p(torch.exp(-input.abs()))
    miss = q * target + p * (1 - target)
    weight = alpha * target + (1 - alpha) * (1 - target) if alpha >= 0 else torch.ones_like(miss)
    contrast = abs(2 * alpha - 1) if alpha >= 0 else 0.0
    steep = entropy * gamma * miss ** (gamma - 1) if gamma else torch.zeros_like(miss)
    power = miss**gamma
    of_entropy = power * torch.maximum((nearer - target).abs(), torch.minimum(p, q))
    # p q (1 - 2 target), in which the two targets have opposite signs.
    of_power = steep * p * q * torch.maximum(target, 1 - target)
    of_class = contrast * entropy * power
    of_miss = steep * torch.maximum(p, q)
    return {
        "input": weight.abs() * torch.maximum(of_entropy, of_power),
        "target": torch.maximum(
            weight.abs() * torch.maximum(of_miss, power * input.abs()), of_class
        ),
    }


def sigmoid_focal_loss(
    inputs: Tensor,
    targets: Tensor,
    alpha: float = 0.25,
    gamma: float = 2,
    reduction: str = "none",
    weight: Tensor | None = None,
) -> Arguments:
    """Focal loss (Lin et al., Focal Loss for Dense Object Detection, 2017), as torchvision's.

    With ``p = sigmoid(inputs)``, the probability of the wrong class ``m = p * (1 - targets) + (1 -
    p) * targets``, and the binary cross entropy ``c``: ``a * m**gamma * c``, where ``a = alpha *
    targets + (1 - alpha) * (1 - targets)``, or 1 if ``alpha`` is negative. Unlike torchvision's, it
    keeps the digits of easy examples.

    Args:
        inputs: logits, any shape.
        targets: probabilities, or labels 0 and 1; broadcastable with ``inputs``, aligned at the
            last dimension. Differentiable. The loss is NaN where ``m`` is negative.
        alpha: weight of target 1; target 0 has 1 - alpha. Negative for none.
        gamma: exponent of ``m``; at least 0, which gives the binary cross entropy.
    """
    return Arguments((inputs, targets), reduction, (alpha, gamma), weight)


SPEC = element_loss(
    sigmoid_focal_loss,
    "SigmoidFocalLoss",
    formula="a * m^gamma * (y * log(1 + exp(-x)) + (1 - y) * log(1 + exp(x)))",
    operands=(
        Operand("input", "logits"),
        Operand("target", "probabilities, or labels 0 and 1", domain=PROBABILITIES, labels=True),
    ),
    parameters=(
        Parameter(
            *("alpha", 0.25, -math.inf, "weight of target 1; that of target 0 is 1 - alpha", 0.3),
            usual=(0.0, 1.0),
        ),
        Parameter("gamma", 2.0, 0.0, "exponent of m, the probability of the wrong class", 2.3),
    ),
    elements=_elements,
    functional=torchs_own(reduced(_as_written)),
    branch_coordinate=prediction,
    temporaries=18,
    tolerance=Tolerance(4.0, "the power multiplies the 3 ulp of its base on a GPU by gamma"),
    terms=Terms(_terms, "its gradients are differences, for targets between 0 and 1"),
)
