"""What differs between units in a check: the sizes, layouts and contents of their operands.

One file a unit: an element, a row, a hidden state, or all that a ``Model`` is called with.
"""

from collections.abc import Mapping

from losscli.cases.case import Case
from losscli.losses import ELEMENT, HIDDEN_STATE, MODEL, ROW, Unit
from losscli.verify.geometry.element import ElementGeometry
from losscli.verify.geometry.geometry import Geometry as Geometry
from losscli.verify.geometry.hidden_state import HiddenStateGeometry
from losscli.verify.geometry.model import ModelGeometry
from losscli.verify.geometry.row import RowGeometry

GEOMETRIES: Mapping[Unit, Geometry] = {
    ELEMENT: ElementGeometry(),
    ROW: RowGeometry(),
    HIDDEN_STATE: HiddenStateGeometry(),
    MODEL: ModelGeometry(),
}


def geometry_of(case: Case) -> Geometry:
    """Return the geometry of a case's unit."""
    return GEOMETRIES[case.spec.unit]
