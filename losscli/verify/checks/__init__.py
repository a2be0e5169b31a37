"""The registry of checks: one file and one line a check."""

from __future__ import annotations

from losscli.verify.checks import (
    branches,
    broadcasts,
    bulk,
    coverage,
    determinism,
    gradients,
    graphs,
    layouts,
    memory,
    retained,
    rounding,
    second_derivatives,
    sizes,
    specials,
    streams,
    value,
)
from losscli.verify.checks.check import Check

CHECKS: dict[str, Check] = {
    check.name: check
    for check in (
        value.CHECK,
        gradients.CHECK,
        coverage.CHECK,
        branches.CHECK,
        layouts.CHECK,
        sizes.CHECK,
        broadcasts.CHECK,
        bulk.CHECK,
        rounding.CHECK,
        specials.CHECK,
        retained.CHECK,
        second_derivatives.CHECK,
        memory.CHECK,
        determinism.CHECK,
        streams.CHECK,
        graphs.CHECK,
    )
}

__all__ = ["CHECKS", "Check"]
