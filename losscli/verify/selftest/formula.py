"""The reference, taken apart so that an implementation of the self-test can change a part."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from torch import Tensor

from losscli.cases.case import Case
from losscli.losses.spec import Operand

if TYPE_CHECKING:
    from losscli.implementations.implementation import BoundLoss

Make = Callable[[Case], "BoundLoss"]


def formula(case: Case, *operands: Tensor, **changes: object) -> Tensor:
    """Return the reference, some of whose settings may be changed."""
    operands = tuple(map(_survivable, case.spec.operands, operands))
    settings = {"reduction": case.reduction, **case.spec.resolve(case.params), **changes}
    return case.spec.reference(*operands, **settings)


def _survivable(operand: Operand, values: Tensor) -> Tensor:
    """Return an operand that PyTorch takes.

    A mistake may leave the domain; there PyTorch's kernel may end the process's use of the GPU.
    """
    if not (operand.refused and values.is_cuda):
        return values
    return operand.domain.inside(values.nan_to_num())


def unreduced(case: Case, *operands: Tensor, **changes: object) -> Tensor:
    """Return the loss of each element, unreduced."""
    return formula(case, *operands, reduction="none", **changes)


def reduced(case: Case, elements: Tensor, count: Tensor | None = None) -> Tensor:
    """Reduce elements as the case asks for; a mean over ``count``, or over all that are given."""
    if case.reduction == "none":
        return elements
    total = elements.sum()
    divisor = elements.numel() if count is None else count
    return total / divisor if case.reduction == "mean" else total
