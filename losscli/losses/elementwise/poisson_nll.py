"""Negative log-likelihood of a Poisson distribution."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from losscli.machine.pytorch import Tensor, torch

from .. import aten
from ..calling import Arguments, Calls, reduction_of
from ..domain import COUNTS, POSITIVE, Domain
from ..fields import LOSS, Operand, Parameter, Terms, switch
from ..making import element_loss
from ..shapes import BROADCAST


def _elements(
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


def _terms(
    input: Tensor, target: Tensor, *, log_input: float, full: float, eps: float
) -> dict[str, Tensor]:
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


def _operands_of(parameters: Mapping[str, float]) -> tuple[Operand, ...]:
    # With ``full`` the loss jumps at a target of 1.
    rate = Operand("input", "rates", domain=POSITIVE)
    logarithm = Operand("input", "logarithms of rates, or rates")
    smooth = Domain("above 1", low=1.0) if parameters["full"] else None
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
    """
    reduction = reduction_of(reduction, size_average, reduce)
    return Arguments((input, target), reduction, (float(log_input), float(full), eps), weight)


SPEC = element_loss(
    poisson_nll_loss,
    "PoissonNLLLoss",
    calls=Calls("poisson_nll", shapes=BROADCAST),
    formula="exp(x) - y * x",
    operands_of=_operands_of,
    parameters=(
        switch("log_input", True, "whether the input holds logarithms of rates"),
        switch("full", False, "whether to add Stirling's approximation of log(target!)"),
        Parameter("eps", 1e-8, 0.0, "what is added to a rate before its logarithm", 0.3),
    ),
    elements=_elements,
    functional=aten.poisson_nll_loss,
    temporaries=10,
    terms=Terms(_terms, "exp(input) - target cancels where the rate is the count"),
)
