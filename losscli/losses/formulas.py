"""What formulas share: reductions, promotion, and coordinates that select branches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Literal, TypeVar, get_args

from losscli.machine.pytorch import Tensor, torch

Reduction = Literal["none", "mean", "sum"]
REDUCTIONS: tuple[Reduction, ...] = get_args(Reduction)


def reduce(elements: Tensor, reduction: str) -> Tensor:
    """Apply a reduction; as in PyTorch, the mean of nothing is NaN and its sum 0."""
    if reduction == "mean":
        return elements.mean()
    return elements.sum() if reduction == "sum" else elements


def widened(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype, at least float32."""
    return torch.promote_types(dtype, torch.float32)


def promoted(*operands: Tensor) -> torch.dtype:
    """Return the promoted dtype."""
    dtype = operands[0].dtype
    for operand in operands[1:]:
        dtype = torch.promote_types(dtype, operand.dtype)
    return dtype


def at_least_float32(*operands: Tensor) -> tuple[tuple[Tensor, ...], torch.dtype]:
    """Return operands in at least float32, so that no step rounds to 16 bits, and the dtype."""
    dtype = promoted(*operands)
    wide = widened(dtype)
    # A call of to() takes longer than a look at the dtype.
    return tuple(each if each.dtype == wide else each.to(wide) for each in operands), dtype


def reduced(elements: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return a loss of operands and a reduction, from the loss of each element."""

    @wraps(elements)
    def loss(*operands: Tensor, reduction: str, **parameters: float) -> Tensor:
        return reduce(elements(*operands, **parameters), reduction)

    return loss


def in_float32(elements: Callable[..., Tensor], count: int | None = None) -> Callable[..., Tensor]:
    """As :func:`reduced`, with the first ``count`` operands, or all, in at least float32."""

    @wraps(elements)
    def loss(*operands: Tensor, reduction: str, **parameters: float) -> Tensor:
        wide, dtype = at_least_float32(*operands[:count])
        found = elements(*wide, *operands[len(wide) :], **parameters)
        return reduce(found, reduction).to(dtype)

    return loss


def alike(*operands: Tensor) -> tuple[Tensor, ...]:
    """Return the operands in one dtype and shape, without copies if they agree."""
    dtype = promoted(*operands)
    shaped: tuple[Tensor, ...] = torch.broadcast_tensors(*(each.to(dtype) for each in operands))
    return shaped


def torchs_own(loss: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return a loss of ``aten.py`` that first promotes and broadcasts its operands."""

    def functional(*operands: Tensor, **settings: Any) -> Tensor:
        return loss(*alike(*operands), **settings)

    return functional


def weighted_sum(weight: Tensor, value: Tensor) -> Tensor:
    """Return the row sums of weight * value, with 0 times infinity as 0."""
    return (weight * torch.where(weight == 0, torch.zeros_like(value), value)).sum(-1)


Value = TypeVar("Value")


def fixed(value: Value) -> Callable[[Mapping[str, float]], Value]:
    """Return ``value`` for any parameters."""
    return lambda parameters: value


never, always = fixed(False), fixed(True)
"""Whether something holds, for any parameters."""
NO_KINKS: Callable[[Mapping[str, float]], tuple[float, ...]] = fixed(())
SMOOTH, QUADRATIC = fixed(("smooth",)), fixed(("quadratic",))
"""Branch names of smooth losses."""
KINK_AT_ZERO = fixed((0.0,))
LINEAR_ON_BOTH_SIDES = fixed(("linear below", "linear above"))


def difference(input: Tensor, target: Tensor, *others: Tensor) -> Tensor:
    """``input - target``."""
    return input - target


def product(input: Tensor, target: Tensor, *others: Tensor) -> Tensor:
    """``input * target``."""
    return input * target


def prediction(input: Tensor, target: Tensor, *others: Tensor) -> Tensor:
    """The prediction, in the broadcast shape."""
    return input + 0 * target
