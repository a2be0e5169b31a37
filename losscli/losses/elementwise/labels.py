"""Margin and focal losses of a prediction and a label."""

from __future__ import annotations

import math

from losscli.machine.pytorch import Tensor, torch

from .. import aten
from ..calling import Arguments, Calls, reduction_of
from ..domain import PROBABILITIES, SIGNS
from ..fields import LOSS, Operand, Parameter, Terms, Tolerance, last_dimension
from ..formulas import alike, fixed, prediction, product, reduce
from ..making import element_loss
from ..shapes import ONTO_INPUT


def _hinge_reference(input: Tensor, target: Tensor, *, reduction: str, margin: float) -> Tensor:
    return reduce(torch.clamp(margin - input * target, min=0), reduction)


def hinge_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    margin: float = 1.0,
    weight: Tensor | None = None,
) -> Arguments:
    """Hinge loss for targets of -1 and 1: ``clamp(margin - input * target, min=0)``.

    Where ``input * target == margin``, the gradient passes, as in ``torch.clamp``. Targets are not
    checked.

    Args:
        margin: value of ``input * target`` from which the loss is 0; any finite number.
    """
    return Arguments((input, target), reduction, (margin,), weight)


HINGE = element_loss(
    hinge_loss,
    "HingeLoss",
    formula="max(margin - x * y, 0)",
    operands=(
        Operand("input", "predictions"),
        Operand("target", "labels", shape=last_dimension, domain=SIGNS),
    ),
    parameters=(
        Parameter("margin", 1.0, -math.inf, "input * target from which the loss is 0", 1.3),
    ),
    reference=_hinge_reference,
    kinks=lambda parameters: (parameters["margin"],),
    branch_coordinate=product,
    branches=fixed(("linear", "clamped")),
)


FAR = 40.0
"""The product from which ``exp(-product)`` or ``-product`` is the loss even in float64."""


def _soft_margin(input: Tensor, target: Tensor) -> Tensor:
    """PyTorch's formula, finite for any finite operands."""
    product = input * target
    far = product.abs() > FAR
    inside = torch.where(far, torch.zeros_like(product), product)
    # Its gradient has one rounding less than logsigmoid's.
    near = torch.logaddexp(-inside, torch.zeros_like(inside))
    beyond = torch.where(product > 0, torch.exp(-product.clamp(min=0)), -product)
    return torch.where(far, beyond, near)


def _soft_margin_terms(input: Tensor, target: Tensor) -> dict[str, Tensor]:
    product = input * target
    # ``e^p`` of a rounded ``p`` is off by up to ``|p|`` ulp, of which the tolerance has 4.
    more = 1 + torch.where(target.abs() == 1, 0.0, product.abs() / 4)
    slope = torch.sigmoid(-product) * more
    return {
        LOSS: aten.softplus(-product) * more,
        "input": slope * target.abs(),
        "target": slope * input.abs(),
    }


def _soft_margin_functional(input: Tensor, target: Tensor, *, reduction: str) -> Tensor:
    """PyTorch's function, or its formula for a gradient for the target."""
    input, target = alike(input, target)
    if not target.requires_grad:
        return aten.soft_margin_loss(input, target, reduction=reduction)
    return reduce(torch.log1p(torch.exp(-target * input)), reduction)


def soft_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Arguments:
    """Soft margin (logistic) loss, as torch.nn.functional.soft_margin_loss.

    ``log(1 + exp(-input * target))``, without overflow: where PyTorch's is infinite, this is
    ``-input * target``. Unlike PyTorch's, it has a gradient for the target. Targets are not
    checked.

    Args:
        input: logits, any shape.
        target: broadcasts to the shape of ``input``.

    Raises:
        RuntimeError: the target does not broadcast to the input's shape.
    """
    reduction = reduction_of(reduction, size_average, reduce)
    return Arguments((input, target), reduction, (), weight)


SOFT_MARGIN = element_loss(
    soft_margin_loss,
    "SoftMarginLoss",
    calls=Calls("soft_margin", shapes=ONTO_INPUT),
    formula="log(1 + exp(-x * y))",
    operands=(
        Operand("input", "logits"),
        Operand("target", "labels", domain=SIGNS, torch_differentiates=False),
    ),
    elements=_soft_margin,
    functional=_soft_margin_functional,
    branch_coordinate=product,
    temporaries=10,
    terms=Terms(
        _soft_margin_terms,
        "the exponential of input * target multiplies the rounding of the product",
    ),
)


def _focal(input: Tensor, target: Tensor, *, alpha: float, gamma: float) -> Tensor:
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


def _focal_as_written(
    input: Tensor, target: Tensor, *, reduction: str, alpha: float, gamma: float
) -> Tensor:
    """Torchvision's loss, in which easy examples lose their digits."""
    input, target = alike(input, target)
    p = torch.sigmoid(input)
    entropy = aten.binary_cross_entropy_with_logits(input, target, reduction="none")
    right = p * target + (1 - p) * (1 - target)
    loss = entropy * (1 - right) ** gamma
    if alpha >= 0:
        loss = (alpha * target + (1 - alpha) * (1 - target)) * loss
    return reduce(loss, reduction)


def _focal_terms(input: Tensor, target: Tensor, *, alpha: float, gamma: float) -> dict[str, Tensor]:
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


FOCAL = element_loss(
    sigmoid_focal_loss,
    "SigmoidFocalLoss",
    formula="a * m^gamma * (y * log(1 + exp(-x)) + (1 - y) * log(1 + exp(x)))",
    operands=(
        Operand("input", "logits"),
        Operand("target", "probabilities, or labels 0 and 1", domain=PROBABILITIES, labels=True),
    ),
    parameters=(
        Parameter(
            *("alpha", 0.25, -math.inf, "a of target 1, 1 less it of target 0", 0.3),
            usual=(0.0, 1.0),
        ),
        Parameter("gamma", 2.0, 0.0, "exponent of m, the probability of the wrong class", 2.3),
    ),
    elements=_focal,
    functional=_focal_as_written,
    branch_coordinate=prediction,
    temporaries=18,
    tolerance=Tolerance(4.0, "the power multiplies the 3 ulp of its base on a GPU by gamma"),
    terms=Terms(_focal_terms, "its gradients are differences, for targets between 0 and 1"),
)
