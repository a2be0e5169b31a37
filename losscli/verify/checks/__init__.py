"""The registry of checks: a function with ``@check`` in one of these files is a check of its name.

``config/check_names.py`` has a line for each, and their order.
"""

from __future__ import annotations

from losscli.config.check_names import CATCHES
from losscli.errors import UsageError, unknown
from losscli.losses import EVERY_LOSS
from losscli.verify.checks import (
    behaviour,
    branches,
    coverage,
    gradients,
    layouts,
    memory,
    parts,
    row_layouts,
    row_relations,
    row_values,
    second_derivatives,
    sizes,
    steps,
    values,
)
from losscli.verify.checks.check import Check

_FILES = (
    *(values, coverage, branches, sizes, layouts, memory, behaviour),
    *(gradients, second_derivatives, steps, parts),
    *(row_values, row_layouts, row_relations),
)
_FOUND = {
    found.name: found
    for file in _FILES
    for found in vars(file).values()
    if isinstance(found, Check)
}
CHECKS: dict[str, Check] = {name: _FOUND[name] for name in CATCHES}


def find_check(name: str) -> Check:
    """Look a check up by its name, or that of one of its results; UsageError lists the names."""
    for check in CHECKS.values():
        results = (result for spec in EVERY_LOSS.values() for result in check.results(spec))
        if name == check.name or name in results:
            return check
    raise UsageError(unknown("check", name, CHECKS))


__all__ = ["CHECKS", "Check", "find_check"]
