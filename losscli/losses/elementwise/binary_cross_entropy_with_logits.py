"""Binary cross entropy of logits."""

from __future__ import annotations

from losscli.machine.pytorch import Tensor, torch

from .. import aten
from ..calling import Arguments, Calls, reduction_of
from ..domain import PROBABILITIES
from ..fields import Operand, Terms
from ..formulas import prediction, torchs_own
from ..making import element_loss
from ..shapes import EQUAL


def _elements(input: Tensor, target: Tensor) -> Tensor:
    """PyTorch's formula, but nothing cancels in the loss."""
    positive = input > 0
    linear = input * (positive.to(input.dtype) - target)
    return linear + torch.log1p(torch.exp(torch.where(positive, -input, input)))


def _terms(input: Tensor, target: Tensor) -> dict[str, Tensor]:
    """Label and probability, relative to the nearer of 0 and 1."""
    nearer = (input > 0).to(input.dtype)
    return {"input": torch.maximum((nearer - target).abs(), torch.sigmoid(-input.abs()))}


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Arguments:
    """Binary cross entropy of logits, as torch.nn.functional.binary_cross_entropy_with_logits.

    ``target * log(1 + exp(-input)) + (1 - target) * log(1 + exp(input))``, without overflow. Unlike
    PyTorch's, it keeps its digits when a logit fits its label well. The gradient is
    ``sigmoid(input) - target``. Targets are not checked.

    Args:
        pos_weight: multiplies the loss of positive targets, ``target * log(1 + exp(-input))``;
            broadcasts to the shape of both, so (C,) has one value per column.
    """
    reduction = reduction_of(reduction, size_average, reduce)
    if pos_weight is None:
        return Arguments((input, target), reduction, (), weight)
    operator = "binary_cross_entropy_with_pos_weight"
    return Arguments((input, target, pos_weight), reduction, (), weight, operator=operator)


SPEC = element_loss(
    binary_cross_entropy_with_logits,
    "BCEWithLogitsLoss",
    calls=Calls("binary_cross_entropy_with_logits", shapes=EQUAL),
    kept=("weight", "pos_weight"),
    formula="y * log(1 + exp(-x)) + (1 - y) * log(1 + exp(x))",
    operands=(
        Operand("input", "logits"),
        Operand("target", "probabilities, or labels 0 and 1", domain=PROBABILITIES),
    ),
    elements=_elements,
    # It loses the digits of small losses.
    functional=torchs_own(aten.binary_cross_entropy_with_logits),
    branch_coordinate=prediction,
    temporaries=7,
    terms=Terms(_terms, "the gradient sigmoid(input) - target is a difference"),
)
