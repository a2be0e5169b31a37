"""The registry of losses: a file of this folder that has a ``SPEC`` is a loss."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from .domain import DOMAINS, Domain
from .reduction import REDUCTIONS, Reduction, reduce
from .spec import LossFunction, LossSpec, Operand, Parameter, Shape, Tolerance


def _find() -> dict[str, LossSpec]:
    """Return the specs of the files in this folder, by name."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    specs = [getattr(import_module(f"{__name__}.{name}"), "SPEC", None) for name in names]
    return {spec.name: spec for spec in specs if spec}


LOSSES: dict[str, LossSpec] = _find()

__all__ = [
    "DOMAINS",
    "LOSSES",
    "REDUCTIONS",
    "Domain",
    "LossFunction",
    "LossSpec",
    "Operand",
    "Parameter",
    "Reduction",
    "Shape",
    "Tolerance",
    "reduce",
]
