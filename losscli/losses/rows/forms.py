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
from ..fields import CLASS_INDICES, Operand, Parameter, looser
from ..formulas import Reduction
from .spec import RowSpec

NO_INDEX = -(2.0**63)
"""The least int64, a class index that no row has: nothing is ignored."""
IGNORE_INDEX = Parameter(
    name="ignore_index",
    default=-100,
    minimum=-(2.0**63),
    description="class index of ignored rows",
    example=3,
    is_integer=True,
    other=3,
    absent=NO_INDEX,
)


def temperature_of(logits: str) -> Parameter:
    """Return the parameter that divides logits."""
    # At a smaller temperature, probabilities are 0, of which few formulas have a derivative.
    usual = 0.1, 100.0
    return Parameter("temperature", 1.0, 0.0, f"divides {logits}", 1.3, open=True, usual=usual)


def ignored_index(parameters: Mapping[str, float]) -> int | None:
    """Return the class index of ignored rows."""
    index = parameters.get(IGNORE_INDEX.name, NO_INDEX)
    return None if index == NO_INDEX else int(index)


def operators_of(spec: RowSpec) -> Iterator[RowSpec]:
    """Yield a loss with its own operands, then with each of its ``forms``."""
    yield spec
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
        )


def forms(spec: RowSpec) -> Iterator[RowSpec]:
    """Yield an operator's forms, the plain one first."""
    yield _form(spec)
    for optional in (operand for operand in spec.operands if operand.optional):
        yield _form(spec, optional)
    if spec.doubling:
        yield _form(spec, values=2, name=f"{spec.name}_with_{spec.doubling}")


def _form(spec: RowSpec, own: Operand | None = None, values: int = 1, **changes: Any) -> RowSpec:
    numbered = _are_numbered(spec.operands)
    fixed = {spec.doubling: float(values - 1)} if spec.doubling else {}
    if not numbered and any(each.name == IGNORE_INDEX.name for each in spec.parameters):
        fixed[IGNORE_INDEX.name] = IGNORE_INDEX.default
    form = spec.form(own, fixed, **changes)

    def bind_loss(reduction: Reduction, settings: Mapping[str, float]) -> Callable[..., Tensor]:
        """Return the public function; two values per row are stacked in one tensor."""
        named = {**spec.settings(reduction, settings, **fixed), **spec.arguments}
        called = named_call(spec.loss, form.names, named)
        return called if values == 1 else lambda *tensors: _stacked(called(*tensors))

    tolerance = spec.tolerance
    for each in form.operands:
        if each.roundings:
            reason = f"the {each.name} adds {each.roundings} roundings to four"
            tolerance = looser(tolerance, each.roundings, reason)
    return replace(
        form,
        parameters=tuple(each for each in spec.parameters if each.name not in fixed),
        values=values,
        counts=form.counts if numbered or own else None,
        tolerance=tolerance,
        relations=spec.relations.of_form(f"{own.form}_" if own else ""),
        bind_loss=bind_loss,
    )


def _are_numbered(operands: tuple[Operand, ...]) -> bool:
    return any(operand.kind == CLASS_INDICES for operand in operands)


def _stacked(found: tuple[Tensor, ...]) -> Tensor:
    # Kernels write both to one tensor.
    whole = None if torch.compiler.is_compiling() else found[0]._base
    return torch.stack(found) if whole is None else whole
