"""One minus the cosine similarity of rows."""

from __future__ import annotations

from losscli.machine.pytorch import Tensor, torch

from ..calling import Arguments
from ..fields import Operand, Parameter, Relations, Terms
from ..formulas import in_float32
from ..making import row_loss
from ..shapes import broadcast_tensors
from .terms import OF_VECTORS, LazyTerms, cosine_terms


def _rows(x1: Tensor, x2: Tensor, *, eps: float = 1e-8) -> Tensor:
    norms = [torch.linalg.vector_norm(x, dim=-1).clamp_min(eps) for x in (x1, x2)]
    cosine: Tensor = (x1 * x2).sum(-1) / norms[0] / norms[1]
    return 1 - cosine


def _terms(x1: Tensor, x2: Tensor, *, eps: float = 1e-8) -> LazyTerms:
    one, other = (torch.linalg.vector_norm(x, dim=-1, keepdim=True) for x in (x1, x2))
    norms = one.clamp_min(eps), other.clamp_min(eps)
    return cosine_terms({"x1": x1, "x2": x2}, norms, eps, lambda cosine: cosine.clamp(min=1.0))


def cosine_similarity_loss(
    x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8, *, reduction: str = "mean"
) -> Arguments:
    """One minus torch.nn.functional.cosine_similarity, with fused backward.

    A row's loss is ``1 - x1 . x2 / (max(|x1|, eps) * max(|x2|, eps))``. A square that overflows
    (1.9e19 in float32 and bfloat16) gives the loss and gradients of infinite norms or NaN.

    Args:
        x1: vectors along dimension ``dim``; differentiable.
        x2: vectors that broadcast with ``x1``; differentiable.
        dim: the dimension of the vectors, in the broadcast shape.
        eps: the least norm. The gradient treats a smaller norm as constant.
    """
    shape = x1.shape
    if shape != x2.shape:
        x1, x2 = broadcast_tensors("cosine_similarity", ("x1", "x2"), (x1, x2))
    if x1.dim() > 0 and dim not in (-1, x1.dim() - 1):
        x1, x2 = x1.movedim(dim, -1), x2.movedim(dim, -1)
    else:
        dim = -1

    def restored(gradient: Tensor) -> Tensor:
        return (gradient if dim == -1 else gradient.movedim(-1, dim)).sum_to_size(shape)

    return Arguments((x1, x2), reduction, (eps,), restored=restored)


SPEC = row_loss(
    cosine_similarity_loss,
    "CosineSimilarityLoss",
    formula="1 - x . y / (max(|x|, eps) * max(|y|, eps))",
    operands=(Operand("x1", "vectors"), Operand("x2", "vectors")),
    parameters=(Parameter("eps", 1e-8, 0.0, "least norm", 1e-7, other=1e-3),),
    reference=in_float32(_rows),
    **OF_VECTORS,
    arguments={"dim": -1},
    relations=Relations(reordered=True, mirror="cosine_similarity"),
    terms=Terms(_terms, "one less a cosine, whose gradient is a difference of two vectors"),
)
