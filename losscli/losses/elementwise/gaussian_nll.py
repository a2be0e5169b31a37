"""Negative log-likelihood of a normal distribution."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from losscli.machine.pytorch import Tensor, torch

from ..calling import Arguments, Calls
from ..domain import POSITIVE
from ..fields import LOSS, Operand, Parameter, Terms, Tolerance, switch
from ..formulas import QUADRATIC, reduced
from ..making import element_loss
from ..shapes import WEIGHT, Rule, Shape, Shapes

CONSTANT = 0.5 * math.log(2 * math.pi)
NEGATIVE = "var has negative entry/entries"


def _elements(input: Tensor, target: Tensor, var: Tensor, *, full: float, eps: float) -> Tensor:
    """PyTorch's code, without its check of variances, which would wait for the GPU."""
    var = var.clone()
    with torch.no_grad():
        var.clamp_(min=eps)
    loss = 0.5 * (torch.log(var) + (input - target) ** 2 / var)
    return loss + CONSTANT if full else loss


def _terms(
    input: Tensor, target: Tensor, var: Tensor, *, full: float, eps: float
) -> dict[str, Tensor]:
    var = var.clamp(min=eps)
    difference = input - target
    square = 0.5 * difference * (difference / var)
    loss = torch.maximum(0.5 * torch.log(var).abs(), square)
    if full:
        loss = loss.clamp(min=CONSTANT)
    return {LOSS: loss, "var": square.clamp(min=0.5) / var}


def _operands_of(parameters: Mapping[str, float]) -> tuple[Operand, ...]:
    # Below ``eps`` the loss is flat in the variance, but its gradient is that at ``eps``.
    low = max(0.5, parameters["eps"])  # not so small that float16 cannot hold second derivatives
    smooth = replace(POSITIVE, name=f"at least {low:g}", low=low)
    return (
        Operand("input", "means"),
        Operand("target", "values to predict"),
        Operand("var", "variances", domain=POSITIVE, integers=False, least=0.0, smooth=smooth),
    )


def _refuse(input: Tensor, target: Tensor, var: Tensor) -> None:
    if bool((var.detach() < 0).any()):
        raise ValueError(NEGATIVE)


def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Arguments:
    """Negative log-likelihood of a normal distribution, as torch.nn.functional.gaussian_nll_loss.

    ``0.5 * (log(v) + (input - target)**2 / v)`` with ``v = max(var, eps)``; ``full`` adds ``0.5 *
    log(2 * pi)``. As in PyTorch, a variance below ``eps`` has the gradient at ``eps``.

    Args:
        var: variances, differentiable: a number, or a tensor in the shape of ``input``, with one
            extent replaced by 1, or without the last dimension.

    Raises:
        ValueError: ``var`` has another shape, or a variance is negative and is a number or on the
            CPU. On a GPU, and under a compiler or ``vmap``, its loss is NaN.
    """
    if not isinstance(var, torch.Tensor):
        if var < 0:
            raise ValueError(NEGATIVE)
        var = input.new_full((), var).expand(input.shape)
    elif var.shape != input.shape and var.shape == input.shape[:-1]:
        var = var.unsqueeze(-1)
    return Arguments((input, target, var), reduction, (float(full), eps), weight)


def _is_variance(shape: Shape, input: Shape) -> bool:
    if len(shape) != len(input):
        return len(shape) == len(input) - 1 and shape == input[:-1]
    # The sum of differing extents: torch accepts a single 1.
    return shape == input or sum(o for o, of in zip(shape, input, strict=True) if o != of) == 1


VARIANCE = Rule(
    _is_variance, "but for one extent of 1 or the last dimension the shape of input", ValueError
)
SHAPES = Shapes({"var": VARIANCE, "weight": WEIGHT}, names=("input", "target", "var"))
SPEC = element_loss(
    gaussian_nll_loss,
    "GaussianNLLLoss",
    calls=Calls("gaussian_nll", shapes=SHAPES, refuse=_refuse),
    formula="0.5 * (log(v) + (x - y)^2 / v), v = max(var, eps)",
    operands_of=_operands_of,
    parameters=(
        switch("full", False, "whether to add the constant 0.5 * log(2 * pi)"),
        Parameter("eps", 1e-6, 0.0, "the smallest variance that is divided by", 0.3),
    ),
    elements=_elements,
    functional=reduced(_elements),
    branches=QUADRATIC,
    temporaries=8,
    tolerance=Tolerance(
        1.75, "the square of a difference over that of the variance adds three roundings to four"
    ),
    terms=Terms(_terms, "1 / var - (input - target)^2 / var^2 cancels, and the loss near 0"),
)
