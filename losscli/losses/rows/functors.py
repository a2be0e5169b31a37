"""The spec of a loss over rows whose kernels are a functor, and what calls its operators.

Its rows are vectors of one to three operands: two sets of logits, two or three embeddings, scores.
``csrc/losses/rows/NAME.h`` has the functor, the file of the loss its spec; operators, kernels,
bindings, fake implementations and tests follow from both.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from .. import operators
from ..calling import Arguments, Calls, reduction_of, show
from ..module import NumberedModule, check_parameters, check_reduction
from ..spec import Parameter, Shape
from .spec import RowSpec

if TYPE_CHECKING:
    from torch import Tensor


def of_last_rows(shape: Shape) -> Shape:
    """The operand has one value for each row, which lies along the last dimension."""
    return shape[:-1]


@dataclass(frozen=True, kw_only=True)
class RowFunctorSpec(RowSpec):
    """A loss of each row of its operands, computed by a functor.

    The reference takes the operands in their order, those that may be left out as ``None``.
    """

    module: type[RowModule]
    roles: str
    """What each operand is: ``r`` rows, which have a gradient and come first, ``l`` the number of a
    class for each row, ``t`` another number for each row, ``m`` a mask of rows, ``w`` a number for
    each class. The last two may be left out."""
    second_dimension: bool = False
    """Whether rows lie along dimension 1, as classes do in PyTorch; else along the last."""
    doubling: str = ""
    """The parameter that asks for a second value of each row: the loss then has a dimension of two
    in front."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """What a call of the public function says besides operands and settings, so that it takes the
    rows where the spec has them."""

    @property
    def rows(self) -> int:
        """How many operands are rows."""
        return self.roles.count("r")

    @property
    def promoted(self) -> tuple[str, ...]:
        """The names of the operands whose promoted dtype the loss has: the rows."""
        return self.names[: self.rows]

    def row_dimension(self, dimensions: int) -> int:
        """Return the dimension along which a row lies."""
        return super().row_dimension(dimensions) if self.second_dimension else dimensions - 1


class RowCalls(Calls):
    """The calls of one functor over rows."""

    def __init__(self, name: str, parameters: Sequence[Parameter]) -> None:
        """Describe the calls of a loss with these parameters."""
        super().__init__(name)
        self.parameters = tuple(parameters)

    def loss(self, given: Arguments, *site: int) -> Tensor:
        """Return the loss; ``site`` is the number of a module."""
        arguments = self._checked(given)
        loss: Tensor
        if self.has_kernels(given):
            loss = getattr(operators, self.name)(*arguments, *site)
        else:
            loss = getattr(operators, f"{self.name}_reference")(*arguments)
        return loss

    def loss_with_grad(
        self, given: Arguments, grad_output: Tensor | float = 1.0
    ) -> tuple[Tensor, Tensor]:
        """Return the loss and its gradient for the first operand, in one launch."""
        import torch

        first, *others = self._checked(given)
        if self.has_kernels(given):
            loss, gradient = getattr(operators, f"{self.name}_with_grad")(first, *others)
        else:
            with torch.enable_grad():
                first = first.detach().requires_grad_()
                others = [x.detach() if isinstance(x, torch.Tensor) else x for x in others]
                loss = getattr(operators, f"{self.name}_reference")(first, *others)
                (gradient,) = torch.autograd.grad(loss.sum(), first)
                loss = loss.detach()
        return loss, gradient if given.restored is None else given.restored(gradient)

    def has_kernels(self, given: Arguments) -> bool:
        """Tell whether kernels compute a call; if not, PyTorch's operators do."""
        return True

    def with_grad(self, function: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, Tensor]]:
        """Return the function that returns the gradient as well, of one made by ``function``."""
        arguments: Callable[..., Arguments] = inspect.unwrap(function)

        def loss_with_grad(*given: Any, **named: Any) -> tuple[Tensor, Tensor]:
            return self.loss_with_grad(arguments(*given, **named))

        name = f"{arguments.__name__}_with_grad"
        loss_with_grad.__name__ = loss_with_grad.__qualname__ = name
        loss_with_grad.__doc__ = WITH_GRAD.format(name=arguments.__name__)
        show(loss_with_grad, inspect.signature(arguments), "tuple[Tensor, Tensor]")
        return loss_with_grad

    def check(self, given: Mapping[str, float]) -> None:
        """Raise ValueError for a parameter that is out of its domain."""
        checked = [parameter for parameter in self.parameters if parameter.name in given]
        check_parameters(self.name, checked, given)

    def _checked(self, given: Arguments) -> tuple[Any, ...]:
        if not operators.is_compiling():
            check_reduction(given.reduction)
            named = {p.name: v for p, v in zip(self.parameters, given.parameters, strict=True)}
            self.check(named)
        return (*given.operands, given.reduction, *map(float, given.parameters))


WITH_GRAD = """Return the loss and its gradient for the first operand, without autograd.

Both come from one launch. The arguments are those of :func:`{name}`.

Returns:
    The loss and, in the shape of the first operand, the gradient of the loss (of its sum, with
    reduction ``none``).
"""


class RowModule(NumberedModule):
    """A functor over rows with its settings, which raise ValueError when they are invalid.

    Its ``forward`` takes the operands, and calls :meth:`_loss` with those of the function in its
    order.
    """

    function: ClassVar[Callable[..., Tensor]]
    calls: ClassVar[RowCalls]

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        check_reduction(settings.get("reduction", "mean"))
        self.calls.check(settings)
        for name, value in settings.items():
            setattr(self, name, value)
        self._settings = tuple(settings)

    def _loss(self, *operands: Tensor, **others: Tensor | None) -> Any:
        settings = {name: getattr(self, name) for name in self._settings}
        arguments: Callable[..., Arguments] = inspect.unwrap(self.function)
        return self.calls.loss(arguments(*operands, **others, **settings), self._site)

    def extra_repr(self) -> str:
        """Show the settings where the module is printed."""
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in self._settings)


def settled(reduction: str, size_average: bool | None, reduce: bool | None) -> str:
    """Return the reduction that a module's arguments ask for, the deprecated ones included."""
    return reduction_of(reduction, size_average, reduce, stacklevel=4)
