"""Cosine embedding loss of pairs of rows."""

from __future__ import annotations

import math

from losscli.machine.pytorch import Tensor, torch

from ..calling import Arguments, reduction_of
from ..domain import SIGNS
from ..fields import Operand, Parameter, Relations, Terms
from ..formulas import in_float32
from ..making import row_loss
from ..shapes import broadcast_tensors, remedy
from .spec import of_last_rows
from .terms import OF_VECTORS, LazyTerms, cosine_terms, masked


def _rows(first: Tensor, second: Tensor, target: Tensor, *, margin: float = 0.0) -> Tensor:
    products = [(a * b).sum(-1) for a, b in ((first, second), (first, first), (second, second))]
    norms = torch.sqrt(products[1] + 1e-12) * torch.sqrt(products[2] + 1e-12)
    cosine = products[0] / norms
    unlike = (cosine - margin).clamp_min(0)
    loss = torch.where(target == 1, 1 - cosine, torch.zeros_like(cosine))
    return torch.where(target == -1, unlike, loss)


def _terms(input1: Tensor, input2: Tensor, target: Tensor, *, margin: float = 0.0) -> LazyTerms:
    one, other = (((x * x).sum(-1, keepdim=True) + 1e-12).sqrt() for x in (input1, input2))
    cosine = (input1 * input2).sum(-1) / (one * other).squeeze(-1)
    active = (target == 1) | ((target == -1) & (cosine >= margin))
    least = torch.where(target == 1, 1.0, abs(margin))
    rows = {"input1": input1, "input2": input2}
    return masked(cosine_terms(rows, (one, other), 0.0, lambda found: found.fmax(least)), active)


def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Arguments:
    """Cosine embedding loss, as torch.nn.functional.cosine_embedding_loss, with fused backward.

    With c the cosine of two rows, a row's loss is ``1 - c`` for target 1, ``max(0, c - margin)``
    for -1, and 0 otherwise. As in PyTorch, 1e-12 is added to squared norms, the derivative at ``c =
    margin`` is the right side's, and a square that overflows (1.9e19 in float32 and bfloat16) gives
    the loss and gradients of infinite norms or NaN.

    Args:
        input1: vectors, ``(N, D)`` or ``(D)``; differentiable.
        input2: vectors that broadcast with ``input1``; differentiable. As in PyTorch, a one-element
            vector has the norm of one element.
        target: 1 or -1 for each row, ``(N)`` or ``()``.
    """
    reduction, shape = reduction_of(reduction, size_average, reduce), input1.shape
    if target.dim() > 1 or input1.dim() != target.dim() + 1 or input2.dim() != target.dim() + 1:
        raise RuntimeError(
            f"cosine_embedding: a target of shape () takes rows of shape (D), and one of shape (N) "
            f"rows of shape (N, D), but got input1 {tuple(input1.shape)}, input2 "
            f"{tuple(input2.shape)} and target {tuple(target.shape)}"
            f"{remedy('target', target.shape, shape[:-1])}"
        )
    composed = input1.shape[-1] != input2.shape[-1]
    if not composed and (shape != input2.shape or target.shape != shape[:-1]):
        every = (input1, input2, target.unsqueeze(-1))
        names = ("input1", "input2", "target")
        input1, input2, target = broadcast_tensors("cosine_embedding", names, every)
        target = target[..., 0]
    return Arguments(
        (input1, input2, target),
        reduction,
        (margin,),
        restored=lambda gradient: gradient.sum_to_size(shape),
        composed=composed,
    )


SPEC = row_loss(
    cosine_embedding_loss,
    "CosineEmbeddingLoss",
    header="cosine_similarity",
    formula="1 - c where t = 1, max(0, c - margin) where t = -1, c = x . y / (|x| * |y|)",
    operands=(
        Operand("input1", "vectors"),
        Operand("input2", "vectors"),
        Operand("target", "1 or -1", differentiable=False, shape=of_last_rows, domain=SIGNS),
    ),
    parameters=(
        Parameter("margin", 0.0, -math.inf, "cosine above which pairs of target -1 cost", 0.3),
    ),
    reference=in_float32(_rows, 2),
    **OF_VECTORS,
    most_dimensions=2,
    relations=Relations(reordered=True, mirror="cosine_embedding"),
    terms=Terms(_terms, "a cosine less a number, whose gradient is a difference of two vectors"),
)
