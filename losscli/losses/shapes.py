"""Shape checks for functions named after PyTorch's; others accept any shapes that broadcast."""

import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from math import prod

from losscli.machine.pytorch import Tensor, torch

from . import operators

Shape = tuple[int, ...]


def broadcast(shapes: Sequence[Shape]) -> Shape:
    """Return the broadcast shape; ValueError if the shapes do not broadcast."""
    whole = []
    for extents in zip_longest(*map(reversed, shapes), fillvalue=1):
        own = {*extents} - {1}
        if len(own) > 1:
            raise ValueError(f"the shapes {shapes} do not broadcast")
        whole.append(own.pop() if own else 1)
    return tuple(reversed(whole))


def broadcasts_to(shape: Shape, whole: Shape) -> bool:
    """Tell whether a shape broadcasts to exactly ``whole``."""
    missing = len(whole) - len(shape)
    if missing < 0:
        return False
    over = whole[missing:]
    return shape == over or all(own in (1, of) for own, of in zip(shape, over, strict=True))


def remedy(name: str, shape: Shape, due: Shape) -> str:
    """Return code that makes a tensor's shape ``due``, to end a message, or ``""``."""
    shape, due = tuple(shape), tuple(due)
    for dim in range(max(len(shape), len(due))):
        if shape[dim : dim + 1] == (1,) and shape[:dim] + shape[dim + 1 :] == due:
            return f"; write {name}.squeeze({dim})"
        if due[dim : dim + 1] == (1,) and due[:dim] + due[dim + 1 :] == shape:
            return f"; write {name}.unsqueeze({dim})"
    extents = ", ".join([f"{extent}" for extent in due])  # str() of a symbol is not compiled
    if len(due) == 1 and prod(shape) == due[0]:
        return f"; write {name}.flatten()"
    if len(shape) == 1 and prod(due) == shape[0]:
        return f"; write {name}.reshape({extents})"
    if shape == due[:-1]:
        return f"; to repeat it in each row write {name}.unsqueeze(-1).expand({extents})"
    return f"; to repeat it write {name}.expand({extents})" if broadcasts_to(shape, due) else ""


def class_remedy(first: str, whole: Shape, name: str, shape: Shape, classes: int) -> str:
    """Return code that moves classes to dimension ``classes``, to end a message."""
    last = len(whole) - 1
    for dim in range(last, -1, -1):
        if dim == classes or (*whole[:dim], *whole[dim + 1 :]) != tuple(shape):
            continue
        ways = f"; the classes are dimension {classes} of {first}: write "
        if dim == last:
            ways += f"{first}.flatten(0, {dim - 1}) and {name}.flatten(0, {dim - 1}), or "
        one, other = sorted((dim, classes))
        if other - one == 1:
            return f"{ways}{first}.transpose({one}, {other})"
        return f"{ways}{first}.movedim({dim}, {classes})"
    return ""


def broadcast_tensors(
    loss: str, names: Sequence[str], tensors: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """Broadcast tensors; RuntimeError if they do not broadcast."""
    try:
        return tuple(torch.broadcast_tensors(*tensors))
    except RuntimeError:
        given = (f"{n} of shape {list(x.shape)}" for n, x in zip(names, tensors, strict=True))
        raise RuntimeError(
            f"{loss}: {', '.join(given)} do not broadcast: counted from the last, the dimensions "
            "must be equal or hold a 1"
        ) from None


@dataclass(frozen=True)
class Rule:
    """The required shape of an operand."""

    fits: Callable[[Shape, Shape], bool]
    """Tells whether it fits the input's shape."""
    due: str
    """The required shapes in words, before the input's."""
    error: type[Exception]
    """PyTorch's error for other shapes."""
    of_loss: bool = False
    """Whether it must fit the elementwise loss's shape, not the input's."""


# A weight must not enlarge the loss.
WEIGHT = Rule(
    broadcasts_to, "a shape that broadcasts to that of the loss", RuntimeError, of_loss=True
)


@dataclass(frozen=True)
class Shapes:
    """The operand shapes that a function accepts."""

    rules: Mapping[str, Rule] = field(default_factory=lambda: {"weight": WEIGHT})
    """By operand name; operands without a rule broadcast."""
    names: tuple[str, ...] = ("input", "target")
    """The operands without the weight, in order."""
    warns: bool = False
    """Whether PyTorch warns of a target that broadcasts."""

    def wrong(self, loss: str, names: Sequence[str], shapes: Sequence[Shape]) -> Exception | None:
        """Return the error for operand shapes, the input's first, or None if they fit."""
        for k, (name, shape) in enumerate(zip(names, shapes, strict=True)):
            rule = self.rules.get(name)
            if rule is None or rule.fits(shape, shapes[0]):
                continue
            whole = shapes[0]
            if rule.of_loss:
                try:
                    whole = broadcast(shapes[:k])
                except ValueError:
                    return None  # the kernel says so
                if rule.fits(shape, whole):
                    continue
            return rule.error(
                f"{loss}: {name} must have {rule.due} {list(whole)}, but has shape {list(shape)}"
                f"{remedy(name, shape, whole)}"
            )
        return None

    def check(self, loss: str, operands: Sequence[Tensor], weight: Tensor | None) -> None:
        """Raise PyTorch's error or give its warning for operand shapes."""
        shapes, names = [each.shape for each in operands], self.names[: len(operands)]
        if self.warns and not operators.is_compiling() and shapes[0] != shapes[1]:
            warnings.warn(
                f"Using a target size ({shapes[1]}) that is different to the input size "
                f"({shapes[0]}): broadcasting then computes the loss of all pairs, "
                "which may not be intended",
                stacklevel=5,
            )
        if weight is not None:
            shapes, names = [*shapes, weight.shape], (*names, "weight")
        if error := self.wrong(loss, names, shapes):
            raise error


BROADCAST = Shapes()
WARNED = Shapes({"weight": replace(WEIGHT, error=ValueError)}, warns=True)
EQUAL = Shapes(
    {
        "target": Rule(operator.eq, "the shape of input", ValueError),
        "pos_weight": WEIGHT,
        "weight": WEIGHT,
    },
    names=("input", "target", "pos_weight"),
)
ONTO_INPUT = Shapes(
    {
        "target": Rule(broadcasts_to, "a shape that broadcasts to that of input", RuntimeError),
        "weight": WEIGHT,
    }
)
