"""Negative log-likelihood of class indices, from log-probabilities."""

from __future__ import annotations

from losscli.machine.pytorch import Tensor

from .. import aten
from ..calling import Arguments, reduction_of
from ..domain import LOG_PROBABILITIES
from ..fields import Operand, Relations
from ..formulas import at_least_float32
from ..making import row_loss
from .forms import IGNORE_INDEX
from .spec import SCORES, TARGET, class_weight, counts_of_classes, number_of_one_row, of_classes


def _reference(
    input: Tensor, target: Tensor, weight: Tensor | None, *, reduction: str, ignore_index: float
) -> Tensor:
    (wide,), dtype = at_least_float32(input)
    wide = wide.contiguous()  # PyTorch has no derivative of others
    weight = None if weight is None else weight.to(wide.dtype)
    loss = aten.nll_loss(
        wide, target.long(), weight, ignore_index=int(ignore_index), reduction=reduction
    )
    return loss.to(dtype)


def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Arguments:
    """Negative log-likelihood, as torch.nn.functional.nll_loss, with fused backward.

    A row's loss is ``-weight[target] * input[target]``. Forward reads one element per row.

    Args:
        input: log-probabilities, ``(C)``, ``(N, C)`` or ``(N, C, d1, ...)``; differentiable.
        target: class indices in int64, int32 or uint8, in the shape of ``input`` without C.
        weight: a factor for each class, ``(C)``; not differentiable. The mean divides by the sum of
            the targets' weights.

    Raises:
        ValueError: the target has another batch size.
        RuntimeError: other shapes or dtypes do not fit.
    """
    reduction = reduction_of(reduction, size_average, reduce)
    if input.dim() == 1:
        target = number_of_one_row(target)
    return Arguments((input, target, weight), reduction, (ignore_index,))


SPEC = row_loss(
    nll_loss,
    "NLLLoss",
    kept=("weight",),
    formula="-w[y] * x[y]",
    operands=(
        Operand("input", "log-probabilities", domain=LOG_PROBABILITIES),
        TARGET,
        class_weight(of_classes, differentiable=False),
    ),
    parameters=(IGNORE_INDEX,),
    reference=_reference,
    holds=SCORES,
    second_dimension=True,
    counts=counts_of_classes,
    picks=True,
    relations=Relations(reordered=True),
)
