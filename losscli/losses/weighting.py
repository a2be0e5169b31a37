"""Losses with a weight: their specs, derived from those of the losses themselves.

``weight=`` of a public function calls the loss ``weighted_NAME``: an operator and a library of its
own, built at the first use of a weight, whose last operand is the weight. Its elements are
``loss * weight``, and its mean divides by the number of elements. Where PyTorch divides by the sum
of the weights, the public function does, with this mean and the mean of the weights.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from . import operators
from .domain import WEIGHTS
from .reduction import reduce
from .spec import LossFunction, LossSpec, Operand, Tolerance

if TYPE_CHECKING:
    from torch import Tensor

PREFIX = "weighted_"
WEIGHT = Operand("weight", "weights of the elements", domain=WEIGHTS)


def inner_name(name: str) -> str:
    """Return the name of the loss that a weighted one multiplies; of any other its own."""
    return name.removeprefix(PREFIX)


def is_weighted(name: str) -> bool:
    """Tell whether the name of a loss is that of one with a weight."""
    return name.startswith(PREFIX)


def weighted(spec: LossSpec) -> LossSpec:
    """Return the spec of a loss with a weight."""
    name = f"{PREFIX}{spec.name}"
    return replace(
        spec,
        name=name,
        formula=f"weight * ({spec.formula})",
        operands=(*spec.operands, WEIGHT),
        reference=partial(_multiplied, spec.reference),
        functional=partial(_multiplied, spec.functional) if spec.functional else None,
        branch_coordinate=partial(_without_weight, spec.branch_coordinate),
        loss=partial(_call, spec, name),
        loss_with_grad=partial(_call_with_grad, spec, name),
        temporaries=spec.temporaries + 2,
        tolerance=_tolerance(spec.tolerance),
    )


def _tolerance(own: Tolerance | None) -> Tolerance:
    """Return the tolerance of a loss with two roundings more than the four of an element.

    One is the product with the weight. The other is in the weight's gradient, which multiplies the
    loss itself, and that takes a rounding more than its slope.
    """
    reason = "the weight adds two roundings to the four of an element"
    if own is None:
        return Tolerance(1.5, reason)
    return Tolerance(own.factor + 0.5, f"{own.reason}; {reason}")


def _multiplied(inner: LossFunction, *operands: Tensor, reduction: str, **settings: Any) -> Tensor:
    """Return a loss times the weight, as a person writes it in PyTorch."""
    *others, weight = operands
    return reduce(inner(*others, reduction="none", **settings) * weight, reduction)


def _without_weight(coordinate: LossFunction, *operands: Tensor) -> Tensor:
    """Return the branch coordinate, which does not depend on the weight."""
    return coordinate(*operands[:-1])


def call(
    name: str,
    operands: tuple[Tensor, ...],
    weight: Tensor,
    reduction: str,
    *settings: float,
    by_weights: bool = False,
) -> Tensor:
    """Return the weighted loss of a public function.

    Args:
        name: of the loss.
        operands: without the weight.
        weight: broadcastable with them.
        reduction: ``none``, ``mean`` or ``sum``.
        settings: the loss's parameters, and the number of a module.
        by_weights: divide a mean by the sum of the weights, not by the number of elements. Then the
            incoming gradient of the kernel changes with the weights, and where they are new in each
            step forward soon writes no gradient ahead.
    """
    loss: Tensor = getattr(operators, f"{PREFIX}{name}")(*operands, weight, reduction, *settings)
    if reduction != "mean" or not by_weights:
        return loss
    # The same quotient as that of the sums, whose size float16 may not hold.
    return (loss / _mean(weight, loss)).to(loss.dtype)


def call_with_grad(
    name: str,
    operands: tuple[Tensor, ...],
    weight: Tensor,
    reduction: str,
    *parameters: float,
    grad_output: Tensor | float,
    by_weights: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return the weighted loss and its gradient for the input in one launch: see :func:`call`."""
    operator = getattr(operators, f"{PREFIX}{name}_with_grad")
    mean: Tensor | None = None
    if reduction == "mean" and by_weights:
        # Beside the weights alone a loss is not there yet: it has the dtype of all operands.
        mean = _mean(weight, *operands)
        grad_output = grad_output / mean
    incoming = operators.incoming(grad_output)
    loss, gradient = operator(*operands, weight, reduction, *parameters, *incoming)
    return (loss if mean is None else (loss / mean).to(loss.dtype)), gradient


def _mean(weight: Tensor, *others: Tensor) -> Tensor:
    """Return the mean of the weights, in float32 or, where one of the others is, float64."""
    import torch

    wide = weight.dtype if weight.is_floating_point() else torch.float32
    for each in (torch.float32, *(other.dtype for other in others)):
        wide = torch.promote_types(wide, each)
    return weight.mean(dtype=wide)


def _call(spec: LossSpec, name: str, *operands: Tensor, reduction: str, **settings: float) -> Any:
    """Call the operator of a weighted loss."""
    values = spec.resolve(settings).values()
    return getattr(operators, name)(*operands, reduction, *values)


def _call_with_grad(
    spec: LossSpec,
    name: str,
    *operands: Tensor,
    reduction: str,
    grad_output: Tensor | float = 1.0,
    **settings: float,
) -> Any:
    """Call the operator of a weighted loss that returns the gradient as well."""
    values = spec.resolve(settings).values()
    incoming = operators.incoming(grad_output)
    return getattr(operators, f"{name}_with_grad")(*operands, reduction, *values, *incoming)
