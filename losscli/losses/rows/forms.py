"""The forms of a loss over rows, each a spec of its own, as cases, checks and tables know it.

``NAME`` takes the operands that no call leaves out, ``weighted_NAME`` a weight of the classes as
well, ``masked_NAME`` a mask of the rows. ``NAME_with_probabilities`` and the like are the other
operands that the spec names, ``NAME_with_entropy`` returns a second value of each row. All of them
call the same functions and kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from ..calling import WEIGHTED as PREFIX
from ..domain import PROBABILITIES
from ..spec import CLASS_NUMBERS, Operand, Parameter, Tolerance
from .relations import Relations
from .spec import RowLossSpec

IGNORE_INDEX = Parameter(
    name="ignore_index",
    default=-100,
    minimum=-(2.0**31),
    description="class number of rows that do not count",
    example=3,
    is_integer=True,
    other=3,
)
"""The parameter of each loss that takes class numbers."""


def forms(spec: RowLossSpec) -> Iterator[RowLossSpec]:
    """Yield the forms of a loss, those without a weight first."""
    every = {"": spec.operands, **spec.forms}
    for suffix, operands in every.items():
        needed = tuple(operand for operand in operands if not operand.optional)
        yield _form(spec, f"{spec.name}{suffix}", needed, spec.name if suffix else "")
    for suffix, operands in every.items():
        if any(operand.optional for operand in operands):
            first = f"{PREFIX}{spec.name}" if suffix else ""
            yield _form(spec, f"{PREFIX}{spec.name}{suffix}", operands, first)


def _form(spec: RowLossSpec, name: str, operands: tuple[Operand, ...], first: str) -> RowLossSpec:
    """Return the spec of a loss with given operands.

    ``first``: the name of the form with the spec's own operands; empty if this is it.
    """
    numbered = any(operand.kind == CLASS_NUMBERS for operand in operands)
    functional = spec.functional
    return replace(
        spec,
        name=name,
        operands=operands,
        parameters=(IGNORE_INDEX, *spec.parameters) if numbered else spec.parameters,
        reference=partial(_called, spec.reference),
        functional=partial(_called, functional) if functional else None,
        counts=partial(_called, spec.counts) if spec.counts and numbered else None,
        loss=_named(spec.loss),
        loss_with_grad=_named(spec.loss_with_grad),
        tolerance=_tolerance(spec.tolerance, operands),
        relations=_relations(spec.relations, operands, first),
        forms={},
    )


def _tolerance(own: Tolerance | None, operands: tuple[Operand, ...]) -> Tolerance | None:
    """Return the tolerance of a loss with the roundings that its operands add to four."""
    adding = [operand for operand in operands if operand.roundings]
    if not adding:
        return own
    reasons = [own.reason] if own else []
    reasons += [f"the {each.name} adds {each.roundings} roundings to four" for each in adding]
    factor = (own.factor if own else 1.0) + sum(each.roundings for each in adding) / 4
    return Tolerance(factor, "; ".join(reasons))


def _relations(own: Relations, operands: tuple[Operand, ...], first: str) -> Relations:
    """Return what holds for a form: with probabilities it may be the form of class numbers."""
    has_probabilities = any(operand.domain is PROBABILITIES for operand in operands)
    return replace(own, numbered=first) if has_probabilities else own


def _named(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a public function that takes an ignored class as any number, with its own name."""
    called = partial(_called, function)
    called.__name__ = function.__name__  # type: ignore[attr-defined]
    return called


def _called(function: Callable[..., Any], *operands: Any, **settings: Any) -> Any:
    """Call a function with the ignored class as an integer, which a record holds as a float."""
    if IGNORE_INDEX.name in settings:
        settings[IGNORE_INDEX.name] = int(settings[IGNORE_INDEX.name])
    return function(*operands, **settings)
