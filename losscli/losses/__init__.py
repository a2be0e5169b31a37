"""The registry of losses; each has one spec in ``elementwise``, ``rows`` or ``linear``."""

import pkgutil
from collections import ChainMap
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import TypeVar, cast

from losscli.errors import UsageError, unknown

from . import elementwise, linear, rows
from .domain import Domain as Domain
from .elementwise.weighting import is_weighted, weighted
from .fields import CLASS_INDICES as CLASS_INDICES
from .fields import LOSS as LOSS
from .fields import MASK as MASK
from .fields import Operand as Operand
from .fields import Parameter as Parameter
from .fields import Tolerance as Tolerance
from .formulas import REDUCTIONS as REDUCTIONS
from .formulas import Reduction as Reduction
from .formulas import reduce as reduce
from .linear.spec import LinearSpec as LinearSpec
from .linear.spec import forms as linear_forms
from .rows.forms import forms, operators_of
from .rows.spec import RowSpec as RowSpec
from .shapes import Shape as Shape
from .spec import ELEMENT as ELEMENT
from .spec import HIDDEN_STATE as HIDDEN_STATE
from .spec import MODEL as MODEL
from .spec import ROW as ROW
from .spec import LossSpec as LossSpec
from .spec import Spec as Spec
from .spec import Unit as Unit

Kind = TypeVar("Kind", LossSpec, RowSpec, LinearSpec)


def _find(kind: type[Kind], package: ModuleType) -> dict[str, Kind]:
    prefix = f"{package.__name__}."
    files = [import_module(file.name) for file in pkgutil.iter_modules(package.__path__, prefix)]
    specs = [spec for file in files for spec in vars(file).values() if isinstance(spec, kind)]
    return {spec.name: spec for spec in sorted(specs, key=lambda spec: spec.name)}


LOSSES: dict[str, LossSpec] = _find(LossSpec, elementwise)
WEIGHTED: dict[str, LossSpec] = {spec.name: spec for spec in map(weighted, LOSSES.values())}
"""Weighted losses ``weighted_NAME``, chosen by name and not part of ``all``."""
EVERY_ROW_LOSS: dict[str, RowSpec] = {
    each.name: each for spec in _find(RowSpec, rows).values() for each in operators_of(spec)
}
"""Row-wise losses: with class indices, with probabilities."""
ROW_LOSSES = {name: spec for name, spec in EVERY_ROW_LOSS.items() if not spec.composed_of}
"""Those with their own operators and kernels."""
_FORMS = {name: list(forms(spec)) for name, spec in EVERY_ROW_LOSS.items()}
ROW_FORMS: dict[str, RowSpec] = {form.name: form for found in _FORMS.values() for form in found}
"""Row-wise losses in each tested form, chosen by name and not part of ``all``."""
LINEAR_LOSSES: dict[str, LinearSpec] = {
    form.name: form for spec in _find(LinearSpec, linear).values() for form in linear_forms(spec)
}
"""Fused linear losses, with and without a bias, chosen by name and not part of ``all``."""
EVERY_LOSS: Mapping[str, Spec] = ChainMap(
    *cast("list[dict[str, Spec]]", [LOSSES, WEIGHTED, ROW_FORMS, LINEAR_LOSSES])
)
_OPERATORS = {
    **{form.name: form.composed_of or (name,) for name, found in _FORMS.items() for form in found},
    **{name: spec.composed_of for name, spec in LINEAR_LOSSES.items()},
}


def operators_for(name: str) -> tuple[str, ...]:
    """Return the operators that compute a loss."""
    return _OPERATORS.get(name, (name,))


def find_loss(name: str) -> Spec:
    """Return the spec of any loss; UsageError if the name is unknown."""
    found = EVERY_LOSS.get(name)
    if found is None:
        every = (*LOSSES, *WEIGHTED, *ROW_FORMS, *LINEAR_LOSSES)
        candidates = [each for each in every if is_weighted(each) == is_weighted(name)]
        raise UsageError(unknown("loss", name, candidates))
    return found
