"""The forms of a loss over rows that a functor computes, as ``row_forms.py`` names them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..spec import CLASS_NUMBERS, MASK, Operand, Parameter, Terms
from .functors import RowFunctorSpec

if TYPE_CHECKING:
    from torch import Tensor

_PREFIXES = {True: "masked_", False: "weighted_"}
"""Before the name of a form with an optional operand, by whether that is a mask."""


def forms_of_functor(spec: RowFunctorSpec) -> Iterator[RowFunctorSpec]:
    """Yield the forms of a loss, the one without optional operands and second values first."""
    yield _form(spec, spec.name)
    for optional in (operand for operand in spec.operands if operand.optional):
        yield _form(spec, f"{_PREFIXES[optional.kind == MASK]}{spec.name}", optional)
    if spec.doubling:
        yield _form(spec, f"{spec.name}_with_{spec.doubling}", values=2)


def _form(
    spec: RowFunctorSpec, name: str, optional: Operand | None = None, values: int = 1
) -> RowFunctorSpec:
    """Return the spec of a form."""
    operands = tuple(each for each in spec.operands if not each.optional or each is optional)
    form = _Form(spec, operands, {spec.doubling: float(values - 1)} if spec.doubling else {})
    numbered = any(operand.kind == CLASS_NUMBERS for operand in operands)
    counts = spec.counts if numbered or optional else None
    loss, with_grad = form.loss, form.loss_with_grad
    return replace(
        spec,
        name=name,
        operands=operands,
        parameters=tuple(each for each in spec.parameters if each.name not in form.fixed),
        values=values,
        reference=form.reference,
        counts=form.of(counts) if counts else None,
        from_kinks=form.of(spec.from_kinks) if spec.from_kinks else None,
        undecided=form.of(spec.undecided) if spec.undecided else None,
        relations=spec.relations.of_form(name.partition(spec.name)[0]),
        terms=Terms(form.of(spec.terms.of), spec.terms.reason) if spec.terms else None,
        loss=_named(loss, spec.loss),
        loss_with_grad=_named(with_grad, spec.loss_with_grad),
    )


@dataclass(frozen=True)
class _Form:
    """Calls the functions of a loss with the operands that a form takes."""

    spec: RowFunctorSpec
    operands: tuple[Operand, ...]
    fixed: Mapping[str, float]
    """The parameters that the form is a value of."""

    def of(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function of all operands as one of those that the form takes."""

        def called(*operands: Tensor, **settings: Any) -> Any:
            return function(*self._every(operands), **settings, **self.fixed)

        return called

    def reference(self, *operands: Tensor, **settings: Any) -> Tensor:
        """Return the loss by the plain PyTorch formula."""
        loss: Tensor = self.spec.reference(*self._every(operands), **settings, **self.fixed)
        return loss

    def loss(self, *operands: Tensor, **settings: Any) -> Tensor:
        """Return the loss by the public function, two values of a row in one tensor."""
        return _stacked(self._called(self.spec.loss, operands, settings))

    def loss_with_grad(self, *operands: Tensor, **settings: Any) -> tuple[Tensor, Tensor]:
        """Return the loss and the gradient of the prediction by the public function."""
        loss, gradient = self._called(self.spec.loss_with_grad, operands, settings)
        return _stacked(loss), gradient

    def _every(self, operands: tuple[Tensor, ...]) -> list[Tensor | None]:
        """Return the operands in the order of the loss, None where the form leaves one out."""
        given = dict(zip((each.name for each in self.operands), operands, strict=True))
        return [given.get(each.name) for each in self.spec.operands]

    def _called(
        self, function: Callable[..., Any], operands: tuple[Tensor, ...], settings: dict[str, Any]
    ) -> Any:
        """Call a public function, by the names of its arguments."""
        given = dict(zip((each.name for each in self.operands), operands, strict=True))
        reduction = settings.pop("reduction")
        named = {} if len(self.spec.reductions) == 1 else {"reduction": reduction}
        settings = {**settings, **self.fixed}
        kinds = {parameter.name: parameter for parameter in self.spec.parameters}
        settings = {name: _as_given(kinds[name], value) for name, value in settings.items()}
        return function(**given, **settings, **named, **self.spec.arguments)


def _as_given(parameter: Parameter, value: float) -> float:
    """Return the value of a parameter as a person gives it."""
    if parameter.is_switch:
        return bool(value)
    return int(value) if parameter.is_integer else value


def _stacked(found: Any) -> Tensor:
    import torch

    return torch.stack(found) if isinstance(found, tuple) else found


def _named(function: Callable[..., Any], after: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function with the name of another."""

    def called(*operands: Any, **settings: Any) -> Any:
        return function(*operands, **settings)

    called.__name__ = after.__name__
    return called
