"""Phrases that several reports share."""

from __future__ import annotations

from collections.abc import Iterable

from losscli.cases.axes import DEVICE, Mode
from losscli.runs.grouping import grouped
from losscli.runs.records import SKIPPED, BenchResult, VerifyResult

_NAMED = 3
"""Most cases that a line names; it counts the rest."""


def count(number: int, noun: str) -> str:
    """Return ``1 case`` or ``2 cases``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def first_of(names: Iterable[str], most: int, separator: str = ", ") -> str:
    """Return the first names and how many more there are: ``a, b and 3 more``."""
    named = list(names)
    more = f" and {len(named) - most} more" if len(named) > most else ""
    return separator.join(named[:most]) + more


def with_mode(pass_: str, mode: Mode) -> str:
    """Return the name of a pass, with the mode if it is not ``device``."""
    return pass_ if mode == DEVICE else f"{pass_} {mode}"


def skips(results: Iterable[BenchResult | VerifyResult]) -> list[str]:
    """Return a line for each reason, the implementations and cases that were skipped for it."""
    skipped = (result for result in results if result.status == SKIPPED)
    together: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (implementation, reason), found in grouped(
        skipped, lambda result: (result.implementation, result.reason)
    ).items():
        cases = tuple(dict.fromkeys(result.case.name for result in found))
        together.setdefault((reason, cases), []).append(implementation)
    return [
        f"skipped {', '.join(implementations)} ({first_of(cases, _NAMED)}): {reason}"
        for (reason, cases), implementations in together.items()
    ]
