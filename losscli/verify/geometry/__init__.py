"""The sizes, layouts and contents of operands in checks, by unit."""

from losscli.cases.case import Case
from losscli.losses import ELEMENT, HIDDEN_STATE, MODEL, ROW
from losscli.verify.geometry.element import ELEMENTS
from losscli.verify.geometry.geometry import MODELS, Geometry
from losscli.verify.geometry.hidden_state import HIDDEN_STATES
from losscli.verify.geometry.row import ROWS

GEOMETRIES = {ELEMENT: ELEMENTS, ROW: ROWS, HIDDEN_STATE: HIDDEN_STATES, MODEL: MODELS}


def geometry_of(case: Case) -> Geometry:
    """Return the geometry of a case's unit."""
    return GEOMETRIES[case.spec.unit]
