"""What divergences between the distributions of two sets of logits have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ..calling import Arguments
from ..domain import MASKS
from ..formulas import at_least_float32
from ..formulas import reduce as reduced
from ..making import describe, row_loss
from ..parameter import Parameter
from ..spec import MASK as MASK_KIND
from ..spec import Operand, Terms
from .spec import RowSpec, of_last_rows
from .terms import Softmax, masked

if TYPE_CHECKING:
    from torch import Tensor

TEMPERATURE = Parameter("temperature", 1.0, 0.0, "divides both sets of logits", 1.3, open=True)
MASK = Operand(
    "mask",
    "whether a row counts",
    differentiable=False,
    shape=of_last_rows,
    domain=MASKS,
    kind=MASK_KIND,
    optional=True,
)
OPERANDS = (Operand("input", "logits"), Operand("target", "logits"), MASK)

REASON = "a divergence is a sum of differences of logarithms, its gradients of probabilities"

ARGUMENTS = {
    "input": "logits, ``(..., C)`` for C classes; differentiable. A logit of -inf has a "
    "probability of 0, and 0 times infinity is 0.",
    "target": "logits of the same shape; differentiable.",
    "temperature": "divides both sets of logits; above 0.",
    "mask": "bool, ``(...)``: the rows that count; None for all. The loss and the gradients of the "
    "others are 0, whatever they hold.",
    "reduction": "``none`` (one loss for each row), ``mean`` (over the rows that count, which are "
    "counted on the device) or ``sum`` (shape ``()``).",
}


def divergence_loss(
    arguments: Callable[..., Arguments],
    module: str,
    divergence: Callable[..., Tensor],
    terms: Callable[..., Mapping[str, Tensor]],
    *,
    parameters: tuple[Parameter, ...] = (TEMPERATURE,),
    **fields: Any,
) -> RowSpec:
    """Return the spec of a divergence of the distributions of two sets of logits.

    Args:
        arguments: the public function, whose docstring says what the loss is.
        module: the name of the module.
        divergence: the loss of each row, of the log-probabilities of both and the settings of its
            own, as a person writes it in PyTorch.
        terms: the magnitudes of its terms, of two :class:`Softmax`, the temperature and the same.
        parameters: the temperature and these.
        fields: further fields of the spec.
    """
    describe(arguments, ARGUMENTS)
    return row_loss(
        arguments,
        module,
        operands=OPERANDS,
        parameters=parameters,
        reference=partial(_reference, divergence),
        widens=True,
        counts=counts,
        terms=Terms(partial(_terms, terms), REASON),
        **fields,
    )


def _reference(
    divergence: Callable[..., Tensor],
    input: Tensor,
    target: Tensor,
    mask: Tensor | None = None,
    *,
    reduction: str,
    temperature: float = 1.0,
    **settings: float,
) -> Tensor:
    """Compute a divergence as written in PyTorch, 16 bits in float32."""
    import torch

    (first, second), dtype = at_least_float32(input, target)
    if mask is not None:
        # What a masked row holds must not reach a gradient, not even as 0 times infinity.
        kept = mask.unsqueeze(-1)
        first, second = (
            torch.where(kept, each, torch.zeros_like(each)) for each in (first, second)
        )
    log_p, log_q = (torch.log_softmax(each / temperature, -1) for each in (first, second))
    loss = divergence(log_p, log_q, **settings)
    return reduce_rows(loss, mask, reduction).to(dtype)


def _terms(
    of: Callable[..., Mapping[str, Tensor]],
    input: Tensor,
    target: Tensor,
    mask: Tensor | None = None,
    *,
    temperature: float = 1.0,
    **settings: float,
) -> Mapping[str, Tensor]:
    pair = Softmax.of(input, temperature), Softmax.of(target, temperature)
    return masked(of(*pair, temperature, **settings), mask)


def counts(input: Tensor, target: Tensor, mask: Tensor | None = None, **_: float) -> Tensor:
    """Return what each row counts in a mean."""
    found: Tensor = input.new_ones(input.shape[:-1]) if mask is None else mask.to(input.dtype)
    return found


def reduce_rows(loss: Tensor, mask: Tensor | None, reduction: str) -> Tensor:
    """Reduce the losses of rows: the mean is that of the rows that count."""
    import torch

    if mask is None:
        return reduced(loss, reduction)
    loss = torch.where(mask, loss, torch.zeros_like(loss))
    return loss.sum() / mask.sum() if reduction == "mean" else reduced(loss, reduction)


def weighted_sum(weight: Tensor, value: Tensor) -> Tensor:
    """Return the sum over a row of weight * value, where 0 times infinity is 0."""
    import torch

    return (weight * torch.where(weight == 0, torch.zeros_like(value), value)).sum(-1)


def arguments_of(
    input: Tensor, target: Tensor, mask: Tensor | None, reduction: str, *parameters: Any
) -> Arguments:
    """Return the arguments of an operator."""
    return Arguments((input, target, mask), reduction, parameters)  # type: ignore[arg-type]
