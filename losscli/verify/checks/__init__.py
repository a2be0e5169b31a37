"""The registry of checks: a function with ``@check`` in one of these files is a check of its name.

``config/check_names.py`` has a line for each, and their order.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from losscli.config.check_names import CATCHES
from losscli.errors import UsageError, unknown
from losscli.losses import EVERY_LOSS
from losscli.verify.checks.check import Check as Check

_FOUND = {
    found.name: found
    for file in pkgutil.iter_modules(__path__)
    for found in vars(import_module(f"{__name__}.{file.name}")).values()
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
