"""The registry of losses: a file of this folder that has a ``SPEC`` is a loss."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from losscli.errors import UsageError, unknown

from .domain import DOMAINS, Domain
from .reduction import REDUCTIONS, Reduction, reduce
from .spec import LOSS, LossFunction, LossSpec, Operand, Parameter, Shape, Terms, Tolerance
from .weighting import is_weighted, weighted


def _find() -> dict[str, LossSpec]:
    """Return the specs of the files in this folder, by name."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    specs = [getattr(import_module(f"{__name__}.{name}"), "SPEC", None) for name in names]
    return {spec.name: spec for spec in specs if spec}


LOSSES: dict[str, LossSpec] = _find()
WEIGHTED: dict[str, LossSpec] = {
    spec.name: spec for spec in (weighted(each) for each in LOSSES.values())
}
"""Each loss with a weight, ``weighted_NAME``: to be chosen by name, and no part of ``all``."""


def find_loss(name: str) -> LossSpec:
    """Return the spec of a loss, with a weight or without.

    Raises:
        UsageError: there is none of that name.
    """
    found = LOSSES.get(name) or WEIGHTED.get(name)
    if found is None:
        raise UsageError(unknown("loss", name, WEIGHTED if is_weighted(name) else LOSSES))
    return found


__all__ = [
    "DOMAINS",
    "LOSS",
    "LOSSES",
    "REDUCTIONS",
    "WEIGHTED",
    "Domain",
    "LossFunction",
    "LossSpec",
    "Operand",
    "Parameter",
    "Reduction",
    "Shape",
    "Terms",
    "Tolerance",
    "find_loss",
    "reduce",
]
