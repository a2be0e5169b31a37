"""Phrases that several reports share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from losscli.axes import DEVICE, Mode
from losscli.runs.records import SKIPPED, BenchResult, VerifyResult

_NAMED = 3
"""Most cases that a line names; it counts the rest."""


def count(number: int, noun: str) -> str:
    """Return ``1 case`` or ``2 cases``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def with_mode(pass_: str, mode: Mode) -> str:
    """Return the name of a pass, with the mode if it is not ``device``."""
    return pass_ if mode == DEVICE else f"{pass_} {mode}"


def format_ulp(ulp: float) -> str:
    """Write an error in ulp in at most five characters."""
    if ulp in (0.0, math.inf):
        return f"{ulp:g}"
    if ulp < 10:
        return f"{ulp:.2f}"
    return f"{ulp:.0f}" if ulp < 10000 else f"{ulp:.0e}"


def skips(results: Iterable[BenchResult | VerifyResult]) -> list[str]:
    """Return a line for each reason, the implementations and cases that were skipped for it."""
    cases: dict[tuple[str, str], dict[str, None]] = {}
    for result in results:
        if result.status == SKIPPED:
            why = (result.implementation, result.reason)
            cases.setdefault(why, {})[result.case.name] = None
    together: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (implementation, reason), names in cases.items():
        together.setdefault((reason, tuple(names)), []).append(implementation)
    return [
        f"skipped {', '.join(implementations)} ({_name_some(names)}): {reason}"
        for (reason, names), implementations in together.items()
    ]


def _name_some(names: Sequence[str]) -> str:
    rest = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")
