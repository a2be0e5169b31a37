"""Binary cross entropy of probabilities, and of logits."""

from __future__ import annotations

from losscli.machine.pytorch import Tensor, torch

from .. import aten
from ..calling import Arguments, Calls, reduction_of
from ..domain import POSITIVE, PROBABILITIES
from ..fields import Operand, Terms, Tolerance, last_dimension
from ..formulas import alike, at_least_float32, prediction, reduce, reduced, torchs_own
from ..making import element_loss
from ..shapes import EQUAL


def _reference(input: Tensor, target: Tensor, *, reduction: str) -> Tensor:
    input, target = torch.broadcast_tensors(input, target)
    (input, target), dtype = at_least_float32(input, target)
    return aten.binary_cross_entropy(input, target, reduction=reduction).to(dtype)


def _of_probabilities(input: Tensor, target: Tensor) -> Tensor:
    return -(target * torch.log(input) + (1 - target) * torch.log1p(-input))


def _terms_of_probabilities(input: Tensor, target: Tensor) -> dict[str, Tensor]:
    return {"target": torch.maximum(-torch.log(input), -torch.log1p(-input))}


def _refuse(input: Tensor, target: Tensor) -> None:
    for name, operand in (("input", input), ("target", target)):
        outside = ~((operand.detach() >= 0) & (operand.detach() <= 1))
        if bool(outside.any()):
            place = [int(i) for i in outside.nonzero()[0]]
            value = float(operand.detach()[tuple(place)])
            raise RuntimeError(
                f"binary_cross_entropy: all elements of {name} must be between 0 and 1, but the "
                f"one at {place} is {value:g}"
            )


def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Arguments:
    """Binary cross entropy of probabilities, as torch.nn.functional.binary_cross_entropy.

    ``-(target * log(input) + (1 - target) * log(1 - input))``, with logarithms clamped at -100. As
    in PyTorch, the gradient is ``(input - target) / max(input * (1 - input), 1e-12)``, and the
    target's is ``log(1 - input) - log(input)``.

    Args:
        input: probabilities, any shape.
        target: probabilities, or labels 0 and 1, in the shape of ``input``.

    Raises:
        ValueError: the shapes of target and input differ.
        RuntimeError: on the CPU, an operand is outside [0, 1]. On a GPU its loss and gradients are
            NaN; PyTorch makes the GPU unusable for the process.
    """
    reduction = reduction_of(reduction, size_average, reduce)
    return Arguments((input, target), reduction, (), weight)


OF_PROBABILITIES = element_loss(
    binary_cross_entropy,
    "BCELoss",
    calls=Calls("binary_cross_entropy", shapes=EQUAL, refuse=_refuse),
    kept=("weight",),
    formula="-(y * log(x) + (1 - y) * log(1 - x))",
    operands=(
        Operand("input", "probabilities", domain=PROBABILITIES, refused=True),
        Operand("target", "probabilities, or labels 0 and 1", domain=PROBABILITIES, refused=True),
    ),
    reference=_reference,
    functional=torchs_own(aten.binary_cross_entropy),
    widens=True,
    # The derivatives of PyTorch's gradients contain a constant 1e-12.
    second_order=reduced(_of_probabilities),
    terms=Terms(
        _terms_of_probabilities, "the target's gradient log(1 - input) - log(input) is a difference"
    ),
)


def _of_logits(input: Tensor, target: Tensor) -> Tensor:
    """PyTorch's formula, but nothing cancels in the loss."""
    positive = input > 0
    linear = input * (positive.to(input.dtype) - target)
    return linear + torch.log1p(torch.exp(torch.where(positive, -input, input)))


def _terms_of_logits(input: Tensor, target: Tensor) -> dict[str, Tensor]:
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
    ``sigmoid(input) - target``.

    Args:
        input: logits, any shape.
        target: probabilities, or labels 0 and 1, in the shape of ``input``; not checked.
        pos_weight: multiplies the loss of positive targets, ``target * log(1 + exp(-input))``;
            broadcasts to the shape of both, so (C,) has one value per column.

    Raises:
        ValueError: the shapes of target and input differ.
    """
    reduction = reduction_of(reduction, size_average, reduce)
    if pos_weight is None:
        return Arguments((input, target), reduction, (), weight)
    operator = "binary_cross_entropy_with_pos_weight"
    return Arguments((input, target, pos_weight), reduction, (), weight, operator=operator)


_OPERANDS = (
    Operand("input", "logits"),
    Operand("target", "probabilities, or labels 0 and 1", domain=PROBABILITIES),
)
OF_LOGITS = element_loss(
    binary_cross_entropy_with_logits,
    "BCEWithLogitsLoss",
    calls=Calls("binary_cross_entropy_with_logits", shapes=EQUAL),
    kept=("weight", "pos_weight"),
    formula="y * log(1 + exp(-x)) + (1 - y) * log(1 + exp(x))",
    operands=_OPERANDS,
    elements=_of_logits,
    # It loses the digits of small losses.
    functional=torchs_own(aten.binary_cross_entropy_with_logits),
    branch_coordinate=prediction,
    temporaries=7,
    terms=Terms(_terms_of_logits, "the gradient sigmoid(input) - target is a difference"),
)


def _with_pos_weight(input: Tensor, target: Tensor, pos_weight: Tensor) -> Tensor:
    """PyTorch's formula, but nothing cancels in the loss."""
    positive = pos_weight * (target * -aten.logsigmoid(input))
    return positive - (1 - target) * aten.logsigmoid(-input)


def _functional_with_pos_weight(
    input: Tensor, target: Tensor, pos_weight: Tensor, *, reduction: str
) -> Tensor:
    """PyTorch's function, or its formula for a gradient for ``pos_weight``."""
    input, target, pos_weight = alike(input, target, pos_weight)
    if not pos_weight.requires_grad:
        return aten.binary_cross_entropy_with_logits(
            input, target, pos_weight=pos_weight, reduction=reduction
        )
    of_positive, of_negative = aten.softplus(-input), aten.softplus(input)
    return reduce(pos_weight * target * of_positive + (1 - target) * of_negative, reduction)


def _terms_with_pos_weight(input: Tensor, target: Tensor, pos_weight: Tensor) -> dict[str, Tensor]:
    of_positive = pos_weight * (target * torch.sigmoid(-input))
    of_negative = (1 - target) * torch.sigmoid(input)
    costs = -pos_weight * aten.logsigmoid(input), -aten.logsigmoid(-input)
    return {
        "input": torch.maximum(of_positive.abs(), of_negative.abs()),
        "target": torch.maximum(costs[0].abs(), costs[1]),
    }


def binary_cross_entropy_with_pos_weight(
    input: Tensor,
    target: Tensor,
    pos_weight: Tensor,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Arguments:
    """:func:`binary_cross_entropy_with_logits` with a differentiable ``pos_weight``.

    ``pos_weight * target * softplus(-input) + (1 - target) * softplus(input)``.

    Args:
        input: logits, any shape.
        target: probabilities, or labels 0 and 1; broadcastable with ``input``, aligned at the last
            dimension.
        pos_weight: multiplies the loss of positive targets; broadcastable with both, so (C,) has
            one value per column.
    """
    return Arguments((input, target, pos_weight), reduction, (), weight)


WITH_POS_WEIGHT = element_loss(
    binary_cross_entropy_with_pos_weight,
    "BCEWithPosWeightLoss",
    formula="pos_weight * y * log(1 + exp(-x)) + (1 - y) * log(1 + exp(x))",
    operands=(
        *_OPERANDS,
        Operand(
            "pos_weight",
            "weights of label 1",
            shape=last_dimension,
            domain=POSITIVE,
            torch_differentiates=False,
        ),
    ),
    form_of="binary_cross_entropy_with_logits",
    elements=_with_pos_weight,
    functional=_functional_with_pos_weight,
    branch_coordinate=prediction,
    temporaries=10,
    tolerance=Tolerance(1.5, "the weight of label 1 adds two roundings to the four of an element"),
    terms=Terms(
        _terms_with_pos_weight, "its gradients are differences of what labels 1 and 0 contribute"
    ),
)
