"""The registry of losses: a file of this folder that has a ``SPEC`` is a loss."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from typing import TypeVar

from losscli.errors import UsageError, unknown

from .domain import DOMAINS, Domain
from .reduction import REDUCTIONS, Reduction, reduce
from .rows import RowLossSpec
from .spec import LOSS, LossFunction, LossSpec, Operand, Parameter, Shape, Terms, Tolerance
from .weighting import is_weighted, weighted

Spec = TypeVar("Spec", LossSpec, RowLossSpec)


def _find(kind: type[Spec]) -> dict[str, Spec]:
    """Return the specs of a kind in the files of this folder, by name."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    specs = [getattr(import_module(f"{__name__}.{name}"), "SPEC", None) for name in names]
    return {spec.name: spec for spec in specs if isinstance(spec, kind)}


LOSSES: dict[str, LossSpec] = _find(LossSpec)
WEIGHTED: dict[str, LossSpec] = {
    spec.name: spec for spec in (weighted(each) for each in LOSSES.values())
}
"""Each loss with a weight, ``weighted_NAME``: to be chosen by name, and no part of ``all``."""


ROW_LOSSES: dict[str, RowLossSpec] = _find(RowLossSpec)
"""The losses over rows, which have operators and kernels of their own shape."""


def find_loss(name: str) -> LossSpec:
    """Return the spec of a loss, with a weight or without.

    Raises:
        UsageError: there is none of that name.
    """
    found = LOSSES.get(name) or WEIGHTED.get(name)
    if found is None and name in ROW_LOSSES:
        raise UsageError(
            f"{name} is a loss over rows: it can be called, but not yet be tested here"
        )
    if found is None:
        raise UsageError(unknown("loss", name, WEIGHTED if is_weighted(name) else LOSSES))
    return found


__all__ = [
    "DOMAINS",
    "LOSS",
    "LOSSES",
    "REDUCTIONS",
    "ROW_LOSSES",
    "WEIGHTED",
    "Domain",
    "LossFunction",
    "LossSpec",
    "Operand",
    "Parameter",
    "Reduction",
    "RowLossSpec",
    "Shape",
    "Terms",
    "Tolerance",
    "find_loss",
    "reduce",
]
