"""Specs of ``weighted_NAME``, whose elements are ``loss * weight``, the last operand."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from losscli.machine.pytorch import Tensor

from ..calling import WEIGHTED, Arguments, Calls, named_call
from ..domain import WEIGHTS
from ..fields import LOSS, Operand, Terms, looser
from ..formulas import Reduction, reduce
from ..spec import LossFunction, LossSpec

WEIGHT = Operand("weight", "weights of the elements", domain=WEIGHTS)
# The product with the weight, and the loss in the weight's gradient.
_ROUNDINGS = 2, "the weight adds two roundings to the four of an element"


def inner_name(name: str) -> str:
    """Return the unweighted loss's name."""
    return name.removeprefix(WEIGHTED)


def is_weighted(name: str) -> bool:
    """Tell whether a loss is a weighted one."""
    return name.startswith(WEIGHTED)


def weighted(spec: LossSpec) -> LossSpec:
    """Return the spec of the weighted loss."""
    name, inner = f"{WEIGHTED}{spec.name}", spec.operands_of
    return replace(
        spec,
        name=name,
        formula=f"weight * ({spec.formula})",
        operands=(*spec.operands, WEIGHT),
        reference=partial(_multiplied, spec.reference),
        functional=partial(_multiplied, spec.functional) if spec.functional else None,
        second_order=partial(_multiplied, spec.second_order) if spec.second_order else None,
        branch_coordinate=lambda *operands: spec.branch_coordinate(*operands[:-1]),
        bind_loss=partial(_bind, spec, Calls(name)),
        loss=partial(spec.loss),  # without its name: files define NAME_loss
        form_of="",
        temporaries=spec.temporaries + 2,
        tolerance=looser(spec.tolerance, *_ROUNDINGS),
        operands_of=inner and (lambda parameters: (*inner(parameters), WEIGHT)),
        terms=replace(spec.terms, of=partial(_weighted_terms, spec.terms)) if spec.terms else None,
    )


def _weighted_terms(inner: Terms, *operands: Tensor, **settings: Any) -> Mapping[str, Tensor]:
    *others, weight = operands
    found = inner.of(*others, **settings)
    terms = {name: each * weight.abs() for name, each in found.items()}
    if LOSS in found:
        terms[WEIGHT.name] = found[LOSS]
    return terms


def _multiplied(inner: LossFunction, *operands: Tensor, reduction: str, **settings: Any) -> Tensor:
    *others, weight = operands
    return reduce(inner(*others, reduction="none", **settings) * weight, reduction)


def _bind(
    spec: LossSpec, calls: Calls, reduction: Reduction, settings: Mapping[str, float]
) -> Callable[..., Tensor]:
    """Return the public function with a weight, or the operator if their means differ."""
    if spec.calls.by_weights and reduction == "mean":
        values = tuple(spec.resolve(settings).values())
        return lambda *operands: calls.loss(Arguments(operands, reduction, values))
    return named_call(spec.loss, (*spec.names, WEIGHT.name), spec.settings(reduction, settings))
