"""Multi-class margin loss of rows of scores."""

from __future__ import annotations

import math

from losscli.machine.pytorch import Tensor, torch

from ..calling import Arguments, reduction_of
from ..fields import LOSS, Operand, Parameter, Relations, Terms, last_dimension
from ..formulas import always, in_float32
from ..making import row_loss
from .spec import SCORES, class_indices, class_weight, of_last_rows
from .terms import LazyTerms


def _rows(
    scores: Tensor, target: Tensor, weight: Tensor | None, *, p: float, margin: float
) -> Tensor:
    number = target.long().unsqueeze(-1)
    beyond = margin - scores.gather(-1, number) + scores
    beyond = torch.where(beyond > 0, beyond, torch.zeros_like(beyond))
    others = torch.ones_like(scores).scatter(-1, number, 0.0)
    loss = (others * (beyond if p == 1 else beyond * beyond)).sum(-1) / scores.shape[-1]
    return loss if weight is None else loss * weight.to(loss.dtype)[target.long()]


def _from_kinks(
    input: Tensor, target: Tensor, *_: Tensor | None, margin: float, **__: float
) -> tuple[Tensor, ...]:
    number = target.long().unsqueeze(-1)
    # A row's loss has no kink at its own class.
    return ((margin - input.gather(-1, number) + input).scatter(-1, number, math.inf),)


def _terms(
    input: Tensor, target: Tensor, weight: Tensor | None, *, p: float, margin: float
) -> LazyTerms:
    number = target.long().unsqueeze(-1)
    own = input.gather(-1, number)
    beyond = torch.relu(margin - own + input).scatter(-1, number, 0.0)
    size = input.abs().fmax(own.abs()).clamp(min=abs(margin)) * (beyond > 0)
    share = input.new_full((), 1 / input.shape[-1])
    share = share if weight is None else share * weight[target.long()].unsqueeze(-1)

    def loss() -> Tensor:
        return (share * (size if p == 1 else 2 * beyond * size)).sum(-1)

    def slope() -> Tensor:
        # The row's class has the sum of the others.
        each = share * ((beyond > 0) if p == 1 else 2 * size)
        return each.scatter(-1, number, each.sum(-1, keepdim=True))

    return LazyTerms({LOSS: loss, "input": slope})


def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Arguments:
    """Multi-class margin loss, as torch.nn.functional.multi_margin_loss, with fused backward.

    With y a row's class among C scores, the loss is the sum over other classes i of ``weight[y] *
    max(0, margin - x[y] + x[i])**p``, divided by C. Where a term is not differentiable, its
    derivative is 0. As in PyTorch, a NaN difference counts as 0.

    Args:
        input: scores, ``(N, C)``, ``(C)``, or ``()`` for a single class; differentiable.
        target: class indices in int64, int32 or uint8, ``(N)``; for a single row also ``()``.
        p: 1 or 2.

    Raises:
        ValueError: another p, or a weight that is not one-dimensional.
        RuntimeError: other shapes or dtypes do not fit.
    """
    reduction = reduction_of(reduction, size_average, reduce)
    if p not in (1, 2):
        raise ValueError(f"multi_margin: p must be 1 or 2, but is {p!r}")
    if weight is not None and weight.dim() != 1:
        raise ValueError(
            f"multi_margin: weight must be one-dimensional, but has shape {tuple(weight.shape)}"
        )
    shape = input.shape
    if len(shape) > 2:
        raise RuntimeError(
            f"multi_margin: input must have shape (N, C), (C) or (), but has {tuple(shape)}; write "
            "input.flatten(0, -2) and target.flatten() for rows along the last dimension"
        )
    one_row = len(shape) < 2 or (shape[0] == 1 and not target.dim())
    if one_row:  # its loss has the shape of its target
        input = input.reshape(1, -1) if target.dim() else input.reshape(-1)
    operands = (input, target, weight)
    return Arguments(
        operands, reduction, (p, margin), restored=lambda gradient: gradient.reshape(shape)
    )


SPEC = row_loss(
    multi_margin_loss,
    "MultiMarginLoss",
    kept=("weight",),
    formula="sum over i != y of w[y] * max(0, margin - x[y] + x[i])^p / C",
    operands=(
        Operand("input", "scores"),
        class_indices("target", of_last_rows),
        class_weight(last_dimension, differentiable=False),
    ),
    parameters=(
        Parameter("p", 1.0, 1.0, "the power, 1 or 2", 2.0, maximum=2.0, is_integer=True, other=2.0),
        Parameter("margin", 1.0, -math.inf, "how much higher the class is to score", 0.7),
    ),
    reference=in_float32(_rows, 1),
    temporaries=5,
    holds=SCORES,
    most_dimensions=2,
    from_kinks=_from_kinks,
    relations=Relations(always, reordered=True),
    terms=Terms(_terms, "a sum of differences of scores and a margin"),
)
