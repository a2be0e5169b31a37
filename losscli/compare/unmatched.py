"""The reason why two runs have no row in common."""

from __future__ import annotations

from collections.abc import Iterable

from losscli.compare.rows import Key, label, timed
from losscli.runs.records import Run
from losscli.units import format_size

_NAMED = 2
"""Rows, or values, of each run that are named."""


def why_unmatched(first: str, before: Run, second: str, after: Run) -> str:
    """Return in one sentence why no row of one run is in the other.

    Args:
        first: the name of
        before: the baseline.
        second: the name of
        after: the other run.
    """
    befores, afters = timed(before), timed(after)
    for name, rows in ((first, befores), (second, afters)):
        if not rows:
            return f"Nothing was timed in {name}."
    for part in next(iter(befores)).parts:
        if _without(part, befores) & _without(part, afters):
            return (
                f"Their rows differ in the {part}: {_values(part, befores)} in {first}, "
                f"{_values(part, afters)} in {second}."
            )
    named = [
        f"{name} begins with {'; '.join(label(row) for row in list(rows.values())[:_NAMED])}"
        for name, rows in ((first, befores), (second, afters))
    ]
    return ". ".join(named) + "."


def _without(part: str, keys: Iterable[Key]) -> set[object]:
    return {tuple(v for name, v in key.parts.items() if name != part) for key in keys}


def _values(part: str, keys: Iterable[Key]) -> str:
    """Return what a part is, in the rows of a run."""
    found = list(dict.fromkeys(_written(key.parts[part]) for key in keys))
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return ", ".join(found[:_NAMED]) + more


def _written(value: object) -> str:
    if isinstance(value, tuple) and all(isinstance(extent, int) for extent in value):
        return format_size(value)
    return f"'{value}'" if isinstance(value, str) else str(value)
