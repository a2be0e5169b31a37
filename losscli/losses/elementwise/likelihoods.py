"""Negative log-likelihoods of normal and Poisson distributions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from losscli.machine.pytorch import Tensor, torch

from .. import aten
from ..calling import Arguments, Calls, reduction_of
from ..domain import COUNTS, POSITIVE, Domain
from ..fields import LOSS, Operand, Parameter, Terms, Tolerance, switch
from ..formulas import QUADRATIC, reduced
from ..making import element_loss
from ..shapes import BROADCAST, WEIGHT, Rule, Shape, Shapes

CONSTANT = 0.5 * math.log(2 * math.pi)


def _gaussian_nll(input: Tensor, target: Tensor, var: Tensor, *, full: float, eps: float) -> Tensor:
    """PyTorch's code, without its check of variances, which would wait for the GPU."""
    var = var.clone()
    with torch.no_grad():
        var.clamp_(min=eps)
    loss = 0.5 * (torch.log(var) + (input - target) ** 2 / var)
    return loss + CONSTANT if full else loss


def _gaussian_nll_terms(
    input: Tensor, target: Tensor, var: Tensor, *, full: float, eps: float
) -> Mapping[str, Tensor]:
    var = var.clamp(min=eps)
    difference = input - target
    square = 0.5 * difference * (difference / var)
    loss = torch.maximum(0.5 * torch.log(var).abs(), square)
    if full:
        loss = loss.clamp(min=CONSTANT)
    return {LOSS: loss, "var": square.clamp(min=0.5) / var}


def _gaussian_operands(parameters: Mapping[str, float]) -> tuple[Operand, ...]:
    # Below ``eps`` the loss is flat in the variance, but its gradient is that at ``eps``.
    low = max(0.5, parameters["eps"])  # not so small that float16 cannot hold second derivatives
    smooth = replace(POSITIVE, name=f"at least {low:g}", low=low)
    return (
        Operand("input", "means"),
        Operand("target", "values to predict"),
        Operand("var", "variances", domain=POSITIVE, integers=False, least=0.0, smooth=smooth),
    )


NEGATIVE = "var has negative entry/entries"


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
        input: means, any shape.
        var: variances, differentiable: a number, or a tensor in the shape of ``input``, with one
            extent replaced by 1, or without the last dimension.
        full: whether to add the constant.
        eps: the smallest variance to divide by; at least 0.
        weight: multiplies the loss of each element; broadcasts to its shape, and differentiable.
            The mean divides by the number of elements.

    Raises:
        ValueError: ``var`` has another shape, or a variance is negative and is a number or on the
            CPU. On a GPU, and under a compiler or ``vmap``, its loss is NaN.
    """
    operands = (input, target, _variance(input, var))
    return Arguments(operands, reduction, (float(full), eps), weight)


def _variance(input: Tensor, var: Tensor | float) -> Tensor:
    if not isinstance(var, torch.Tensor):
        if var < 0:
            raise ValueError(NEGATIVE)
        return input.new_full((), var).expand(input.shape)
    if var.shape != input.shape and var.shape == input.shape[:-1]:
        return var.unsqueeze(-1)
    return var


def _is_variance(shape: Shape, input: Shape) -> bool:
    if len(shape) != len(input):
        return len(shape) == len(input) - 1 and shape == input[:-1]
    # The sum of differing extents: torch accepts a single 1.
    return shape == input or sum(o for o, of in zip(shape, input, strict=True) if o != of) == 1


VARIANCE = Rule(
    _is_variance, "but for one extent of 1 or the last dimension the shape of input", ValueError
)
SHAPES = Shapes({"var": VARIANCE, "weight": WEIGHT}, names=("input", "target", "var"))


GAUSSIAN_NLL = element_loss(
    gaussian_nll_loss,
    "GaussianNLLLoss",
    calls=Calls("gaussian_nll", shapes=SHAPES, refuse=_refuse),
    formula="0.5 * (log(v) + (x - y)^2 / v), v = max(var, eps)",
    operands_of=_gaussian_operands,
    parameters=(
        switch("full", False, "whether to add the constant 0.5 * log(2 * pi)"),
        Parameter("eps", 1e-6, 0.0, "the smallest variance that is divided by", 0.3),
    ),
    elements=_gaussian_nll,
    functional=reduced(_gaussian_nll),
    branches=QUADRATIC,
    temporaries=8,
    tolerance=Tolerance(
        1.75, "the square of a difference over that of the variance adds three roundings to four"
    ),
    terms=Terms(
        _gaussian_nll_terms, "1 / var - (input - target)^2 / var^2 cancels, and the loss near 0"
    ),
)


def _poisson_nll(
    input: Tensor, target: Tensor, *, log_input: float, full: float, eps: float
) -> Tensor:
    if log_input:
        loss = torch.exp(input) - target * input
    else:
        loss = input - target * torch.log(input + eps)
    if full:
        # Harmless where not selected, because the gradient is computed there too.
        small = target <= 1
        count = target.masked_fill(small, 2.0)
        stirling = count * torch.log(count) - count + 0.5 * torch.log(2 * math.pi * count)
        loss = loss + stirling.masked_fill(small, 0.0)
    return loss


def _poisson_nll_terms(
    input: Tensor, target: Tensor, *, log_input: float, full: float, eps: float
) -> Mapping[str, Tensor]:
    """Rate, logarithm times target, and Stirling's approximation."""
    if log_input:
        rate, logarithm, slope = torch.exp(input), input.abs(), torch.exp(input)
    else:
        # Near 1 the rounding of input + eps shows in its logarithm.
        rate, logarithm = input.abs(), torch.log(input + eps).abs().clamp(min=1.0)
        slope = torch.ones_like(input)
    own = target if log_input else target / (input + eps)
    loss = torch.maximum(rate, target.abs() * logarithm)
    of_target = logarithm
    if full:
        above = target.clamp(min=1.0)
        loss = loss.maximum(above * torch.log(above).clamp(min=1.0))
        of_target = of_target.maximum(torch.log(above)).clamp(min=0.5)
    return {LOSS: loss, "input": slope.maximum(own.abs()), "target": of_target}


ABOVE_ONE = Domain("above 1", low=1.0)


def _poisson_operands(parameters: Mapping[str, float]) -> tuple[Operand, ...]:
    # With ``full`` the loss jumps at a target of 1.
    rate = Operand("input", "rates", domain=POSITIVE)
    logarithm = Operand("input", "logarithms of rates, or rates")
    smooth = ABOVE_ONE if parameters["full"] else None
    # Where the loss is near 0: for a logarithm of 1/2, or a rate near 0.
    counts = replace(COUNTS, at_least_loss=3.0 if parameters["log_input"] else 0.0)
    target = Operand("target", "counts", domain=counts, smooth=smooth)
    return logarithm if parameters["log_input"] else rate, target


def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    size_average: bool | None = None,
    eps: float = 1e-8,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Arguments:
    """Negative log-likelihood of a Poisson distribution, as torch.nn.functional.poisson_nll_loss.

    ``exp(input) - target * input`` if the input is the logarithm of the rate, else ``input - target
    * log(input + eps)``. ``full`` adds Stirling's approximation of ``log(target!)`` for targets
    above 1: ``target * log(target) - target + 0.5 * log(2 * pi * target)``. Its derivative is 0 for
    other targets, also at 0, where PyTorch's is NaN.

    Args:
        input: rates or their logarithms, any shape.
        target: counts; broadcastable with ``input``, aligned at the last dimension.
        log_input: whether the input holds logarithms.
        full: whether to add the approximation.
        eps: keeps the logarithm of a rate of 0 finite; at least 0.
    """
    reduction = reduction_of(reduction, size_average, reduce)
    parameters = (float(log_input), float(full), eps)
    return Arguments((input, target), reduction, parameters, weight)


POISSON_NLL = element_loss(
    poisson_nll_loss,
    "PoissonNLLLoss",
    calls=Calls("poisson_nll", shapes=BROADCAST),
    formula="exp(x) - y * x",
    operands_of=_poisson_operands,
    parameters=(
        switch("log_input", True, "whether the input holds logarithms of rates"),
        switch("full", False, "whether to add Stirling's approximation of log(target!)"),
        Parameter("eps", 1e-8, 0.0, "what is added to a rate before its logarithm", 0.3),
    ),
    elements=_poisson_nll,
    functional=aten.poisson_nll_loss,
    temporaries=10,
    terms=Terms(_poisson_nll_terms, "exp(input) - target cancels where the rate is the count"),
)
