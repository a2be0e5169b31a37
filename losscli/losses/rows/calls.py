"""Calls the operators of losses over rows for their functions and their modules."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from .. import operators
from ..calling import Arguments, Calls, reduction_of, show
from ..module import NumberedModule, check_parameters, check_reduction
from ..spec import Parameter

if TYPE_CHECKING:
    from torch import Tensor


class RowCalls(Calls):
    """The calls of one loss over rows."""

    def __init__(
        self, name: str, parameters: Sequence[Parameter], *, in_place: bool = False
    ) -> None:
        """Describe the calls of a loss with these parameters.

        ``in_place``: whether an operator writes the gradient over the first operand.
        """
        super().__init__(name)
        self.parameters, self.in_place = tuple(parameters), in_place
        self._accepted: set[tuple[Any, ...]] = set()

    def loss(self, given: Arguments, *site: int) -> Tensor:
        """Return the loss; ``site`` is the number of a module."""
        arguments = self._checked(given)
        loss: Tensor
        if self.has_kernels(given):
            loss = getattr(operators, self.operator(given))(*arguments, *site)
        else:
            loss = getattr(operators, f"{self.operator(given)}_reference")(*arguments)
        return loss

    def loss_with_grad(
        self, given: Arguments, grad_output: Tensor | float = 1.0, *, inplace: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Return the loss and its gradient for the first operand, in one launch."""
        import torch

        first, *others = self._checked(given)
        operator = self.operator(given)
        if inplace:
            return getattr(operators, f"{operator}_with_grad_")(first, *others), first
        if self.has_kernels(given):
            loss, gradient = getattr(operators, f"{operator}_with_grad")(first, *others)
        else:
            with torch.enable_grad():
                first = first.detach().requires_grad_()
                others = [x.detach() if isinstance(x, torch.Tensor) else x for x in others]
                loss = getattr(operators, f"{operator}_reference")(first, *others)
                (gradient,) = torch.autograd.grad(loss.sum(), first)
                loss = loss.detach()
        return loss, gradient if given.restored is None else given.restored(gradient)

    def operator(self, given: Arguments) -> str:
        """Return the name of the operator of a call, where that depends on its operands."""
        return self.name

    def has_kernels(self, given: Arguments) -> bool:
        """Tell whether kernels compute a call; if not, PyTorch's operators do."""
        return True

    def with_grad(self, function: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, Tensor]]:
        """Return the function that returns the gradient as well, of one made by ``function``."""
        arguments: Callable[..., Arguments] = inspect.unwrap(function)

        def loss_with_grad(*given: Any, **named: Any) -> tuple[Tensor, Tensor]:
            more = {"inplace": named.pop("inplace", False)} if self.in_place else {}
            return self.loss_with_grad(arguments(*given, **named), **more)

        signature = inspect.signature(arguments)
        if self.in_place:
            last = inspect.Parameter(
                "inplace", inspect.Parameter.KEYWORD_ONLY, default=False, annotation="bool"
            )
            signature = signature.replace(parameters=[*signature.parameters.values(), last])
        name = f"{arguments.__name__}_with_grad"
        loss_with_grad.__name__ = loss_with_grad.__qualname__ = name
        first = next(iter(signature.parameters))
        text = WITH_GRAD.format(name=arguments.__name__, first=first)
        loss_with_grad.__doc__ = text + IN_PLACE.format(first=first) if self.in_place else text
        show(loss_with_grad, signature, "tuple[Tensor, Tensor]")
        return loss_with_grad

    def check(self, given: Mapping[str, float]) -> None:
        """Raise ValueError for a parameter that is out of its domain."""
        checked = [parameter for parameter in self.parameters if parameter.name in given]
        check_parameters(self.name, checked, given)

    def _checked(self, given: Arguments) -> tuple[Any, ...]:
        """Return the arguments of the operator; a setting is looked at once."""
        settings = (given.reduction, *given.parameters)
        if not operators.is_compiling() and settings not in self._accepted:
            check_reduction(given.reduction)
            named = {p.name: v for p, v in zip(self.parameters, given.parameters, strict=True)}
            self.check(named)
            if len(self._accepted) < _MOST_ACCEPTED:
                self._accepted.add(settings)
        return (*given.operands, given.reduction, *map(float, given.parameters))


_MOST_ACCEPTED = 64


WITH_GRAD = """Return the loss and its gradient for ``{first}``, without autograd.

Both come from one launch. The arguments are those of :func:`{name}`.

Returns:
    The loss and, in the shape of ``{first}``, the gradient of the loss (of its sum, with reduction
    ``none``).
"""
IN_PLACE = """
``inplace`` writes the gradient over ``{first}`` and returns that, which saves its memory; where
``{first}`` requires grad it takes ``torch.no_grad()``.
"""


class RowModule(NumberedModule):
    """A loss over rows with its settings, which raise ValueError when they are invalid.

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
