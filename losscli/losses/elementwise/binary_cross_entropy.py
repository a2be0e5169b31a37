"""Binary cross entropy of probabilities."""

from __future__ import annotations

from losscli.machine.pytorch import Tensor, torch

from .. import aten
from ..calling import Arguments, Calls, reduction_of
from ..domain import PROBABILITIES
from ..fields import Operand, Terms
from ..formulas import at_least_float32, reduced, torchs_own
from ..making import element_loss
from ..shapes import EQUAL


def _reference(input: Tensor, target: Tensor, *, reduction: str) -> Tensor:
    input, target = torch.broadcast_tensors(input, target)
    (input, target), dtype = at_least_float32(input, target)
    return aten.binary_cross_entropy(input, target, reduction=reduction).to(dtype)


def _elements(input: Tensor, target: Tensor) -> Tensor:
    return -(target * torch.log(input) + (1 - target) * torch.log1p(-input))


def _terms(input: Tensor, target: Tensor) -> dict[str, Tensor]:
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

    Raises:
        RuntimeError: on the CPU, an operand is outside [0, 1]. On a GPU its loss and gradients are
            NaN; PyTorch makes the GPU unusable for the process.
    """
    return Arguments((input, target), reduction_of(reduction, size_average, reduce), (), weight)


SPEC = element_loss(
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
    second_order=reduced(_elements),
    terms=Terms(_terms, "the target's gradient log(1 - input) - log(input) is a difference"),
)
