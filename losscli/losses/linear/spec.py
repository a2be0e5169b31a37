"""The spec of a fused linear loss, which ``losscli/linear`` computes."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from losscli.machine.pytorch import Tensor

from .. import aten, operators
from ..fields import Operand, Parameter
from ..formulas import Reduction
from ..rows.spec import class_indices
from ..shapes import Shape
from ..spec import HIDDEN_STATE, Spec, Unit
from .logits_plan import Plan, Size, choose

MEMORY_BUDGET = Parameter(
    "memory_budget",
    0.0,
    0.0,
    "bytes for the logits and the sums of gradients, 0 for half of the free memory",
    2.0**20,
    is_integer=True,
    is_bytes=True,
    other=2.0**20,
)


def operands(prediction: str, numbers: str) -> tuple[Operand, ...]:
    """Return the operands, named after the hidden states and class indices."""
    return (
        Operand(prediction, "hidden states", shape=lambda size: size[:2]),
        class_indices(numbers, lambda size: size[:1]),
        Operand(
            *("linear_weight", "weight of the linear layer"),
            shape=lambda size: (size[2], size[1]),
            factor=lambda size: 1 / math.sqrt(size[1]),  # logits spread as the hidden states do
            shared=True,
        ),
        Operand(
            *("linear_bias", "bias of the linear layer"),
            shape=lambda size: size[2:],
            shared=True,
            form="biased",
        ),
    )


def biased(product: Tensor, linear_bias: Tensor | None = None) -> Tensor:
    """Return the logits of a layer that may have a bias."""
    return product if linear_bias is None else product + linear_bias


@dataclass(frozen=True, kw_only=True)
class LinearSpec(Spec):
    """A fused linear loss; its ``shape`` is tokens x width x classes."""

    unit: ClassVar[Unit] = HIDDEN_STATE
    chooses_order: ClassVar[bool] = True
    squares: bool = True
    composed_of: tuple[str, ...] = ("cross_entropy", "token_log_probs")
    """Cross entropy or log-probabilities of the logits, in parts."""
    logits: Callable[..., Tensor] = biased
    """``logits(product, **operands)``: what the operands after the weight make of the hidden
    states' product with it, in which the logits are affine. They broadcast to it: those of rows are
    columns."""
    sign: float = 1.0
    """The factor from the logits' cross entropy to this loss."""

    @property
    def trained(self) -> tuple[str, ...]:
        return self.differentiable  # training updates the layer

    @property
    def size_example(self) -> str:
        return "tokens x width x classes, such as 8192x4096x128256"

    def takes(self, size: Shape) -> bool:
        return len(size) == 3

    def loss_shape(self, shapes: Sequence[Shape]) -> Shape:
        return shapes[0][:-1]

    def terms_in_sum(self, shape: Shape) -> int:
        return shape[2]

    def temporary_elements(self, shape: Shape) -> int:
        return shape[0] * shape[2]

    def operations(self, shape: Shape, *, backward: bool) -> int:
        rows, width, classes = shape
        return 2 * rows * width * classes * (3 if backward else 1)  # of the matrix products

    def plan(
        self,
        shape: Shape,
        item_bytes: int,
        reduction: Reduction,
        parameters: Mapping[str, float],
        *,
        gradients: bool,
        free: int,
    ) -> Plan:
        """Return losscli's plan; ValueError if none fits the budget."""
        rows, width, classes = shape
        reduced, bent = reduction != "none", parameters["softcap"] != 0
        size = Size(rows, width, classes, item_bytes, gradients, reduced=reduced, bent=bent)
        return choose(size, int(parameters[MEMORY_BUDGET.name]) or None, free)

    def bound(self, reduction: Reduction, parameters: Mapping[str, float]) -> Callable[..., Tensor]:
        settings = self.settings(reduction, parameters)
        return lambda *tensors: self.loss(**dict(zip(self.names, tensors, strict=True)), **settings)


def public(name: str) -> Callable[..., Any]:
    """Return a public function that ``losscli.linear`` registers."""

    def function(*given: Any, **named: Any) -> Any:
        return operators.OPERATORS[name](*given, **named)

    function.__name__ = name
    return function


def logits_of(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return the logits, ``(N, C)``, in the hidden states' dtype."""
    return aten.linear(hidden, weight, bias).reshape(-1, len(weight))


def forms(spec: LinearSpec) -> Iterator[LinearSpec]:
    """Yield a loss without its optional operands, then with each of them, as ``biased_NAME``."""
    for own in (None, *(each for each in spec.operands if each.optional)):
        yield spec.form(own, {})
