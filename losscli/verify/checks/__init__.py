"""The registry of checks: one file and one line per check."""

from __future__ import annotations

from losscli.errors import UsageError, unknown
from losscli.losses import EVERY_LOSS
from losscli.verify.checks import (
    accumulation,
    allocations,
    branches,
    broadcasts,
    bulk,
    captured_backward,
    changed_operands,
    coverage,
    determinism,
    exact,
    float64_sums,
    gradients,
    graphs,
    layouts,
    left_behind,
    memory,
    numeric,
    parts,
    retained,
    rounding,
    row_bulk,
    row_layouts,
    row_lengths,
    row_relations,
    row_values,
    second_derivatives,
    sizes,
    specials,
    steps,
    streams,
    value,
    wrong_targets,
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
        row_values.CHECK,
        row_lengths.CHECK,
        row_layouts.CHECK,
        row_relations.CHECK,
        row_bulk.CHECK,
        wrong_targets.CHECK,
        broadcasts.CHECK,
        bulk.CHECK,
        rounding.CHECK,
        exact.CHECK,
        float64_sums.CHECK,
        specials.CHECK,
        parts.CHECK,
        retained.CHECK,
        accumulation.CHECK,
        steps.CHECK,
        changed_operands.CHECK,
        numeric.CHECK,
        second_derivatives.CHECK,
        memory.CHECK,
        left_behind.CHECK,
        allocations.CHECK,
        determinism.CHECK,
        streams.CHECK,
        graphs.CHECK,
        captured_backward.CHECK,
    )
}


def find_check(name: str) -> Check:
    """Look a check up by its name, or that of one of its results; UsageError lists the names."""
    for check in CHECKS.values():
        results = (result for spec in EVERY_LOSS.values() for result in check.results(spec))
        if name == check.name or name in results:
            return check
    raise UsageError(unknown("check", name, CHECKS))


__all__ = ["CHECKS", "Check", "find_check"]
