"""The registry of losses: one file and one line a loss."""

from __future__ import annotations

from . import hinge, mse, smooth_l1
from .reduction import REDUCTIONS, reduce
from .spec import LossFunction, LossSpec, Operand, Parameter, Shape, Tolerance

LOSSES: dict[str, LossSpec] = {
    spec.name: spec
    for spec in (
        smooth_l1.SPEC,
        mse.SPEC,
        hinge.SPEC,
    )
}

__all__ = [
    "LOSSES",
    "REDUCTIONS",
    "LossFunction",
    "LossSpec",
    "Operand",
    "Parameter",
    "Shape",
    "Tolerance",
    "reduce",
]
