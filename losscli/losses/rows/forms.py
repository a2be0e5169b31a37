"""The forms of a row-wise loss, each with its own spec.

``weighted_NAME`` takes a class weight, ``masked_NAME`` a row mask; ``NAME_with_entropy`` returns a
second value per row.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from losscli.machine.pytorch import Tensor, torch

from ..calling import named_call
from ..domain import PROBABILITIES
from ..formulas import Reduction
from ..spec import CLASS_NUMBERS, MASK, Operand, Parameter, Terms, looser
from .spec import RowSpec

NO_INDEX = -(2.0**63)
"""The least int64, a class index that no row has: nothing is ignored."""
IGNORE_INDEX = Parameter(
    name="ignore_index",
    default=-100,
    minimum=-(2.0**63),
    description="class index of rows that do not count",
    example=3,
    is_integer=True,
    other=3,
    absent=NO_INDEX,
)


def ignored_index(parameters: Mapping[str, float]) -> int | None:
    """Return the class index of ignored rows."""
    index = parameters.get(IGNORE_INDEX.name, NO_INDEX)
    return None if index == NO_INDEX else int(index)


_PREFIXES = {True: "masked_", False: "weighted_"}
"""The prefix of a form with an optional operand, by whether that is a mask."""


def operators_of(spec: RowSpec) -> Iterator[RowSpec]:
    """Yield a loss with its own operands, then with each of its ``forms``."""
    yield replace(spec, forms={})
    for suffix, operands in spec.forms.items():
        of_probabilities = any(operand.domain is PROBABILITIES for operand in operands)
        yield replace(
            spec,
            name=f"{spec.name}{suffix}",
            header=spec.header or spec.name,
            form_of=spec.name,
            operands=operands,
            counts=spec.counts if _are_numbered(operands) else None,
            relations=replace(spec.relations, numbered=spec.name if of_probabilities else ""),
            forms={},
        )


def forms(spec: RowSpec) -> Iterator[RowSpec]:
    """Yield an operator's forms, the plain one first."""
    yield _form(spec, spec.name)
    for optional in (operand for operand in spec.operands if operand.optional):
        yield _form(spec, f"{_PREFIXES[optional.kind == MASK]}{spec.name}", optional)
    if spec.doubling:
        yield _form(spec, f"{spec.name}_with_{spec.doubling}", values=2)


def _form(spec: RowSpec, name: str, optional: Operand | None = None, values: int = 1) -> RowSpec:
    operands = tuple(each for each in spec.operands if not each.optional or each is optional)
    numbered = _are_numbered(operands)
    fixed = {spec.doubling: float(values - 1)} if spec.doubling else {}
    if not numbered and any(each.name == IGNORE_INDEX.name for each in spec.parameters):
        fixed[IGNORE_INDEX.name] = IGNORE_INDEX.default

    def of(function: Callable[..., Any]) -> Callable[..., Any]:
        """Adapt a function of all operands to those of the form."""

        def called(*tensors: Tensor, **settings: Any) -> Any:
            given = dict(zip((each.name for each in operands), tensors, strict=True))
            every = (given.get(each.name) for each in spec.operands)
            return function(*every, **settings, **fixed)

        return called

    def bind_loss(reduction: Reduction, settings: Mapping[str, float]) -> Callable[..., Tensor]:
        """Return the public function; two values per row are stacked in one tensor."""
        named: dict[str, Any] = {**spec.given_as({**settings, **fixed}), **spec.arguments}
        if len(spec.reductions) > 1:
            named["reduction"] = reduction
        called = named_call(spec.loss, [each.name for each in operands], named)
        return called if values == 1 else lambda *tensors: _stacked(called(*tensors))

    counts = spec.counts if numbered or optional else None
    tolerance = spec.tolerance
    for each in operands:
        if each.roundings:
            reason = f"the {each.name} adds {each.roundings} roundings to four"
            tolerance = looser(tolerance, each.roundings, reason)
    return replace(
        spec,
        name=name,
        operands=operands,
        parameters=tuple(each for each in spec.parameters if each.name not in fixed),
        values=values,
        reference=of(spec.reference),
        functional=of(spec.functional) if spec.functional else None,
        counts=of(counts) if counts else None,
        from_kinks=of(spec.from_kinks) if spec.from_kinks else None,
        undecided=of(spec.undecided) if spec.undecided else None,
        tolerance=tolerance,
        relations=spec.relations.of_form(name.partition(spec.name)[0]),
        terms=Terms(of(spec.terms.of), spec.terms.reason) if spec.terms else None,
        bind_loss=bind_loss,
    )


def _are_numbered(operands: tuple[Operand, ...]) -> bool:
    return any(operand.kind == CLASS_NUMBERS for operand in operands)


def _stacked(found: tuple[Tensor, ...]) -> Tensor:
    # Kernels write both to one tensor.
    whole = None if torch.compiler.is_compiling() else found[0]._base
    return torch.stack(found) if whole is None else whole
