"""The registry of checks: a function with ``@check`` in one of these files is the check."""

import pkgutil
from collections.abc import Callable
from importlib import import_module

from losscli.errors import UsageError, unknown
from losscli.losses import EVERY_LOSS
from losscli.verify.checks.check import Check as Check
from losscli.verify.checks.check import Cost as Cost

_FOUND = (
    found
    for file in pkgutil.iter_modules(__path__)
    for found in vars(import_module(f"{__name__}.{file.name}")).values()
    if isinstance(found, Check)
)
CHECKS = {check.name: check for check in sorted(_FOUND, key=lambda check: check.place)}


def named(asks: Callable[[Check], bool]) -> tuple[str, ...]:
    """Return the names of the checks that a predicate selects."""
    return tuple(check.name for check in CHECKS.values() if asks(check))


def find_check(name: str) -> Check:
    """Look up a check by its name, a former one or a result's; UsageError lists the names."""
    for check in CHECKS.values():
        results = (result for spec in EVERY_LOSS.values() for result in check.results(spec))
        if name in (check.name, *check.formerly, *results):
            return check
    raise UsageError(unknown("check", name, CHECKS))
