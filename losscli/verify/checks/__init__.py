"""The registry of checks: a file here and a line of ``config/check_names.py`` for each check."""

from __future__ import annotations

from importlib import import_module

from losscli.config.check_names import CATCHES
from losscli.errors import UsageError, unknown
from losscli.losses import EVERY_LOSS
from losscli.verify.checks.check import Check

CHECKS: dict[str, Check] = {
    name: import_module(f"losscli.verify.checks.{name}").CHECK for name in CATCHES
}


def find_check(name: str) -> Check:
    """Look a check up by its name, or that of one of its results; UsageError lists the names."""
    for check in CHECKS.values():
        results = (result for spec in EVERY_LOSS.values() for result in check.results(spec))
        if name == check.name or name in results:
            return check
    raise UsageError(unknown("check", name, CHECKS))


__all__ = ["CHECKS", "Check", "find_check"]
