"""What losses between two sets of logits have in common: their references and their arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..calling import Arguments
from ..domain import MASKS
from ..reduction import reduce as reduced
from ..spec import MASK as MASK_KIND
from ..spec import Operand, Parameter, Terms
from ..widening import widened
from .spec import of_last_rows
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

Divergence = Callable[["Tensor", "Tensor"], "Tensor"]


def reference_of(
    divergence: Divergence,
    input: Tensor,
    target: Tensor,
    mask: Tensor | None,
    temperature: float,
    reduction: str,
) -> Tensor:
    """Compute a divergence of two log-probabilities as written in PyTorch, 16 bits in float32."""
    import torch

    (first, second), dtype = widened(input, target)
    if mask is not None:
        # What a masked row holds must not reach a gradient, not even as 0 times infinity.
        kept = mask.unsqueeze(-1)
        first, second = (
            torch.where(kept, each, torch.zeros_like(each)) for each in (first, second)
        )
    log_p, log_q = (torch.log_softmax(each / temperature, -1) for each in (first, second))
    loss = divergence(log_p, log_q)
    return reduce_rows(loss, mask, reduction).to(dtype)


def counts(input: Tensor, target: Tensor, mask: Tensor | None = None, **_: float) -> Tensor:
    """Return what each row counts in a mean."""
    found: Tensor = input.new_ones(input.shape[:-1]) if mask is None else mask.to(input.dtype)
    return found


def terms_of(of: Callable[..., Mapping[str, Tensor]]) -> Terms:
    """Return the terms of a divergence, from those of two softmaxes and the settings."""

    def terms(
        input: Tensor,
        target: Tensor,
        mask: Tensor | None = None,
        *,
        temperature: float = 1.0,
        **settings: float,
    ) -> Mapping[str, Tensor]:
        pair = Softmax.of(input, temperature), Softmax.of(target, temperature)
        return masked(of(*pair, temperature, **settings), mask)

    return Terms(terms, REASON)


def reduce_rows(loss: Tensor, mask: Tensor | None, reduction: str) -> Tensor:
    """Reduce the losses of rows: the mean is that of the rows that count."""
    import torch

    if mask is None:
        return reduced(loss, reduction)
    loss = torch.where(mask, loss, torch.zeros_like(loss))
    return loss.sum() / mask.sum() if reduction == "mean" else reduced(loss, reduction)


def expected(weight: Tensor, value: Tensor) -> Tensor:
    """Return the sum over a row of weight * value, where 0 times infinity is 0."""
    import torch

    return (weight * torch.where(weight == 0, torch.zeros_like(value), value)).sum(-1)


def arguments_of(
    input: Tensor, target: Tensor, mask: Tensor | None, reduction: str, *parameters: Any
) -> Arguments:
    """Return the arguments of an operator."""
    return Arguments((input, target, mask), reduction, parameters)  # type: ignore[arg-type]
