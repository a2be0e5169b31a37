"""Phrases that several views share."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from losscli.cases.axes import WARM
from losscli.compare.row_keys import mode_and_cache
from losscli.runs.grouping import collected, grouped
from losscli.runs.records import SKIPPED, BenchResult, Run, TimerTestResult, VerifyResult
from losscli.units import first_of

SHORT_PASSES = {"forward": "fwd", "forward_backward": "fwd+bwd"}
WIDEST_IMPLEMENTATION = 16


def short_pass(pass_: str, mode: str, cache: str = "") -> str:
    """Return ``fwd``, or ``fwd+bwd host warm`` for an unusual mode and cache."""
    return " ".join([SHORT_PASSES.get(pass_, pass_), *mode_and_cache(mode, cache)])


def count(number: int, noun: str) -> str:
    """Return ``1 case`` or ``2 cases``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def listed(title: str, rows: Sequence[str], most: int = 10) -> list[str]:
    """Return a title with its first rows below it; nothing without rows."""
    more = [f"and {len(rows) - most} more"] if len(rows) > most else []
    return [title, *(f"    {row}" for row in (*rows[:most], *more))] if rows else []


def shorten(implementation: str) -> str:
    """Shorten an implementation's name to leave room for the case."""
    if len(implementation) <= WIDEST_IMPLEMENTATION:
        return implementation
    return f"{implementation[: WIDEST_IMPLEMENTATION - 1]}…"


def machine(environment: Mapping[str, Any], *before: object) -> list[str]:
    """Return the given words, the processor, its threads and the torch version."""
    threads = environment.get("threads", 0) if environment.get("device") == "cpu" else 0
    words = [
        *before,
        environment.get("gpu") or environment.get("cpu"),
        count(threads, "thread") if threads else "",
        count(len(environment["ranks"]), "rank") if environment.get("ranks") else "",
        f"torch {environment['torch']}" if environment.get("torch") else "",
        f"kernels: {environment['kernels']}" if environment.get("kernels") else "",
    ]
    return [str(word) for word in words if word]


def caption(run: Run) -> str:
    """Return the machine, and the dtype, reduction and warm cache that all cases share."""
    cases = [result.case for result in run.results if not isinstance(result, TimerTestResult)]
    shared = [{getattr(case, axis) for case in cases} for axis in ("dtype", "reduction")]
    caches = {result.cache for result in run.of(BenchResult) if result.status != SKIPPED}
    words = [*machine(run.environment), *(each.pop() for each in shared if len(each) == 1)]
    return ", ".join([*words, *["warm cache"] * (caches == {WARM})])


def skips(results: Iterable[BenchResult | VerifyResult]) -> list[str]:
    """Return a line for each reason, with the implementations and cases skipped for it."""
    skipped = (result for result in results if result.status == SKIPPED)
    alike = grouped(skipped, lambda result: (result.implementation, result.reason))
    cases = {key: tuple(dict.fromkeys(r.case.name for r in own)) for key, own in alike.items()}
    together = collected(((reason, names), name) for (name, reason), names in cases.items())
    return [
        f"skipped {', '.join(implementations)} ({first_of(names, 3)}): {reason}"
        for (reason, names), implementations in together.items()
    ]


def slug(words: str) -> str:
    """Return words as part of a plot's name: ``forward-backward``."""
    return re.sub(r"[\W_]+", "-", words.lower()).strip("-")
