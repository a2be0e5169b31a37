"""A comparison as plain values for JSON, JSONL and CSV."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from losscli.compare.comparison import Comparison, Missing


def of_comparison(name: str, comparison: Comparison, threshold: float | None) -> dict[str, Any]:
    """Return a comparison with its rows.

    Args:
        name: of the run that is compared.
        comparison: of it with the baseline.
        threshold: beyond which a row that is slower fails, if it is asked for.
    """
    undecided = None if threshold is None else len(comparison.undecided(threshold))
    return {
        "run": name,
        "comparable": comparison.comparable,
        "differences": [unlike.to_json() for unlike in comparison.differences],
        "noise": comparison.noise,
        "controls": comparison.controls,
        "noises": [noise.to_json() for noise in comparison.noises],
        "undecided": undecided,
        "rows": of_rows(name, comparison, threshold),
        "means": [mean.to_json() for mean in comparison.means()],
        "only_before": _of_missing(comparison.only_before),
        "only_after": _of_missing(comparison.only_after),
    }


def of_rows(name: str, comparison: Comparison, threshold: float | None) -> list[dict[str, Any]]:
    """Return the rows, each with the name of its run."""
    slow: set[int] = set()
    unseen: set[int] = set()
    if threshold is not None:
        slow = {id(row) for row in comparison.regressions(threshold)}
        unseen = {id(row) for row in comparison.undecided(threshold)}
    return [
        {
            "run": name,
            "case": row.after.case.name,
            "pass": row.after.pass_,
            "mode": row.after.mode,
            "cache": row.after.cache,
            "implementation": row.after.implementation,
            "table": row.after.table,
            "seconds_before": row.before.seconds.median if row.before.seconds else None,
            "seconds_after": row.after.seconds.median if row.after.seconds else None,
            "ratio": row.ratio.value,
            "ratio_low": row.ratio.low,
            "ratio_high": row.ratio.high,
            "verdict": row.verdict,
            "control": row.control,
            "regression": id(row) in slow,
            "undecided": id(row) in unseen,
        }
        for row in comparison.rows
    ]


def _of_missing(found: Sequence[Missing]) -> list[dict[str, str]]:
    return [
        {
            "case": each.result.case.name,
            "pass": each.result.pass_,
            "mode": each.result.mode,
            "cache": each.result.cache,
            "implementation": each.result.implementation,
            "table": each.result.table,
            "status": each.status,
            "reason": each.why,
        }
        for each in found
    ]
