"""Makes a loss's public functions from the function in its file, and calls its operators."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from typing import Any, NamedTuple

from losscli.machine.pytorch import Tensor, torch

from . import operators
from .fields import Parameter
from .formulas import REDUCTIONS, promoted, widened
from .kinds import explain, refuse_script
from .shapes import Shapes, broadcasts_to

WEIGHTED = "weighted_"


class Arguments(NamedTuple):
    """The arguments of one call, as the operator takes them."""

    operands: tuple[Any, ...]
    """The tensors without the weight of elements; missing operands of rows are None."""
    reduction: str = "mean"
    parameters: tuple[float, ...] = ()
    weight: Tensor | None = None
    divisor: float | Tensor | None = None
    """A further divisor of the result."""
    operator: str = ""
    """The operator's name, if it is not the loss's."""
    dtype: torch.dtype | None = None
    """The loss's dtype, if it is not the operator's."""
    restored: Callable[[Tensor], Tensor] | None = None
    """Maps the gradient of the first operand, if that is a view, to the caller's tensor."""
    added: Added | None = None
    """Another loss of the same first operand to add."""
    composed: bool = False
    """Whether other operators compose the loss, because it has no kernel for these operands."""


class Added(NamedTuple):
    """A multiple of another loss to add."""

    factor: float
    calls: Calls
    given: Arguments


def reduction_of(
    reduction: str, size_average: bool | None, reduce: bool | None, *, stacklevel: int = 4
) -> str:
    """Return the reduction that the deprecated ``size_average`` and ``reduce`` mean, and warn."""
    if size_average is None and reduce is None:
        return reduction
    averages, reduces = size_average is not False, reduce is not False
    meant = "none" if not reduces else "mean" if averages else "sum"
    if not operators.is_compiling():
        text = f"size_average and reduce are deprecated: use reduction={meant!r} instead"
        warnings.warn(text, stacklevel=stacklevel)
    return meant


class Calls:
    """The calls of one loss."""

    parameters: tuple[Parameter, ...] = ()
    """The spec's parameters, once there is a spec."""
    further: Mapping[str, str] = {
        "grad_output": """multiplies the gradient: a number or a one-element tensor; with reduction
        ``none`` also a tensor of the loss's shape."""
    }
    """Descriptions of the keyword arguments of ``loss_with_grad`` that users may give."""

    def __init__(
        self,
        name: str,
        *,
        by_weights: bool = False,
        shapes: Shapes | None = None,
        reductions: Sequence[str] = REDUCTIONS,
        refuse: Callable[..., None] | None = None,
    ) -> None:
        """``by_weights``: divide a weighted mean by the sum of the weights.

        grad_output then changes with them, so forward soon stops computing gradients. ``shapes``:
        those that PyTorch accepts, if not all. ``refuse`` raises PyTorch's error for operands for
        which the loss is NaN.
        """
        self.name, self.by_weights, self.shapes = name, by_weights, shapes
        self.reductions, self.refuse = reductions, refuse
        # Shapes of which operands other than the weight need a check.
        self._unweighted = shapes if shapes and (shapes.warns or len(shapes.rules) > 1) else None

    def check(self, settings: Mapping[str, Any]) -> None:
        """Raise ValueError for an unknown reduction or an invalid parameter."""
        reduction = settings.get("reduction", "mean")
        if reduction not in self.reductions:
            *others, last = map(repr, self.reductions)
            raise ValueError(
                f"reduction must be {', '.join(others)} or {last}, but is {reduction!r}"
            )
        for parameter in self.parameters:
            if parameter.name in settings and (wrong := parameter.check(settings[parameter.name])):
                raise ValueError(f"{self.name}: {wrong}")

    def loss(self, given: Arguments, *site: int) -> Tensor:
        """Return the loss; ``site`` identifies a module."""
        name, every = self._checked(given)
        loss = operators.OPERATORS[name](*every, given.reduction, *given.parameters, *site)
        loss = self._finished(loss, self._divisor(given), given)
        if given.added is None:
            return loss
        factor, calls, others = given.added
        return loss + factor * calls.loss(others, *site)

    def loss_with_grad(
        self, given: Arguments, *, grad_output: Tensor | float = 1.0
    ) -> tuple[Tensor, Tensor]:
        """Return the loss and the first operand's gradient, from one launch."""
        name, every = self._checked(given)
        divisor = self._divisor(given)
        incoming = grad_output if divisor is None else grad_output / divisor
        settings = (given.reduction, *given.parameters, *operators.incoming(incoming))
        loss, gradient = operators.OPERATORS[f"{name}_with_grad"](*every, *settings)
        loss = self._finished(loss, divisor, given)
        if given.added is None:
            return loss, gradient
        factor, calls, others = given.added
        further, slope = calls.loss_with_grad(others, grad_output=factor * grad_output)
        return loss + factor * further, gradient + slope

    def function(self, arguments: Callable[..., Arguments]) -> Callable[..., Tensor]:
        """Return the public function with these arguments."""

        @wraps(arguments)
        def loss(*given: Any, **named: Any) -> Tensor:
            try:
                return self.loss(arguments(*given, **named))
            except Exception:
                explain(loss, given, named)
                raise

        show(loss, inspect.signature(arguments), "Tensor")
        return loss

    def with_grad(self, function: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, Tensor]]:
        """Return the public ``_with_grad`` function of one made by ``function``."""
        arguments: Callable[..., Arguments] = inspect.unwrap(function)
        every = inspect.signature(self.loss_with_grad).parameters
        further = [every[name] for name in self.further]

        def loss_with_grad(*given: Any, **named: Any) -> tuple[Tensor, Tensor]:
            others = dict(named)
            try:
                own = {each.name: others.pop(each.name, each.default) for each in further}
                return self.loss_with_grad(arguments(*given, **others), **own)
            except Exception:
                explain(loss_with_grad, given, named)
                raise

        signature = inspect.signature(arguments)
        signature = signature.replace(parameters=[*signature.parameters.values(), *further])
        loss_with_grad.__name__ = loss_with_grad.__qualname__ = f"{arguments.__name__}_with_grad"
        described = "".join(f"\n    {name}: {text}" for name, text in self.further.items())
        first, more = next(iter(signature.parameters)), f", and\n\nArgs:{described}"
        loss_with_grad.__doc__ = WITH_GRAD.format(
            name=arguments.__name__, first=first, further=more if further else "."
        )
        show(loss_with_grad, signature, "tuple[Tensor, Tensor]")
        return loss_with_grad

    def _checked(self, given: Arguments) -> tuple[str, tuple[Any, ...]]:
        """Return the operator's name and operands, whose shapes are accepted."""
        name, operands, weight = given.operator or self.name, given.operands, given.weight
        shapes = self._unweighted if weight is None else self.shapes
        if shapes is not None:
            first = operands[0].shape
            # Compilers cannot trace warnings, and each comparison would become a guard.
            for other in () if shapes.warns and operators.is_compiling() else operands[1:]:
                # Lengths first, because comparing tuples compares extents.
                if other.dim() != len(first) or other.shape != first:
                    shapes.check(self.name, operands, weight)
                    break
            else:
                if weight is not None and not broadcasts_to(weight.shape, first):
                    shapes.check(self.name, operands, weight)
        return (name, operands) if weight is None else (WEIGHTED + name, (*operands, weight))

    def _finished(self, loss: Tensor, divisor: Tensor | float | None, given: Arguments) -> Tensor:
        # Divided before the cast, because a sum may overflow float16.
        loss = loss if divisor is None else (loss / divisor).to(loss.dtype)
        loss = loss if given.dtype is None else loss.to(given.dtype)
        if self.refuse is None or operators.is_compiling() or type(loss) is not torch.Tensor:
            return loss
        is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor(loss)
        # On a GPU a check would wait. The sum is NaN if an element is, and needs no memory.
        if loss.device.type == "cpu" and not is_wrapped and bool(loss.detach().sum().isnan()):
            self.refuse(*given.operands)
        return loss

    def _divisor(self, given: Arguments) -> Tensor | float | None:
        if given.weight is None or given.reduction != "mean" or not self.by_weights:
            return given.divisor
        weight, *every = given.weight, *given.operands
        if weight.is_floating_point():
            every.append(weight)
        return weight.mean(dtype=widened(promoted(*every)))


def named_call(
    function: Callable[..., Any], operands: Sequence[str], settings: Mapping[str, Any]
) -> Callable[..., Any]:
    """Return a public function of operands by position, with settings that are not its defaults."""
    own = inspect.signature(function).parameters
    given = {name: value for name, value in settings.items() if own[name].default != value}
    bound = partial(function, **given) if given else function
    # The last operand goes by keyword if it does not follow the others in the signature.
    last = operands[-1]
    if last not in own or list(own).index(last) == len(operands) - 1:
        return bound
    return lambda *tensors: bound(*tensors[:-1], **{last: tensors[-1]})


WITH_GRAD = """Return the loss and its gradient for ``{first}``, without autograd.

Both come from one launch. The arguments are those of :func:`{name}`{further}

Returns:
    The loss and, in the shape of ``{first}``, the gradient of the loss (of its sum, with reduction
    ``none``).
"""


def show(function: Any, signature: inspect.Signature, returns: str) -> None:
    """Make a function appear and pickle as one of ``losscli.functional``."""
    function.__signature__ = signature.replace(return_annotation=returns)
    function.__module__ = "losscli.functional"
    function.__prepare_scriptable__ = partial(refuse_script, function)
