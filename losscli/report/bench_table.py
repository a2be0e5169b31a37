"""A bench run as people read it: one row an implementation and pass, then a line to quote.

Columns: ``case`` is the case's name, less the dtype and reduction that all cases share; ``pass`` is
``fwd`` (no gradient) or ``fwd+bwd`` (the loss and the gradient of the prediction); ``median`` and
``p20-p80`` are the time of one call, the latter in the unit of the former; ``GB/s`` is the least
traffic that the pass can do with, over the median; ``vs ref`` is the median of the reference over
this one; ``ulp`` is the largest error against the oracle, of the loss or of an element of the
gradient, in units in the last place; ``extra`` is the most memory that a call takes beyond its
inputs, loss and gradient.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from statistics import geometric_mean

from losscli.cases import Case
from losscli.report.layout import beside_case, shorten
from losscli.report.phrases import count, format_ulp, skips
from losscli.results import FAILED, SKIPPED, BenchResult, Run, Seconds
from losscli.units import format_bytes, format_seconds

SHORT_PASSES = {"forward": "fwd", "forward_backward": "fwd+bwd"}
LONG_PASSES = {"forward": "forward", "forward_backward": "forward+backward"}
HEADERS = ["pass", "impl", "median", "p20-p80", "GB/s", "vs ref", "ulp", "extra"]
REFERENCE = "reference"


def table(run: Run, width: int | None) -> tuple[list[str], list[list[str]]]:
    """Return the headers and rows, grouped by case; its name is broken to stay within a width."""
    results = [result for result in _results(run) if result.status != SKIPPED]
    groups: dict[str, list[list[str]]] = {}
    for result in results:
        groups.setdefault(_name(result.case, results), []).append(_figures(result))
    return beside_case(HEADERS, groups, width)


def notes(run: Run) -> list[str]:
    """Return each failure, then each reason for which something was skipped."""
    texts = [
        f"FAILED {r.case.name}, {r.implementation}, {LONG_PASSES[r.pass_]}: {r.reason}"
        for r in _results(run)
        if r.status == FAILED
    ]
    texts += skips(_results(run))
    return [textwrap.fill(text, 100, subsequent_indent="    ") for text in texts]


def summary(run: Run) -> str:
    """Return a line to quote for each pass, about the first implementation but the reference."""
    names = list(dict.fromkeys(result.implementation for result in _results(run)))
    subject = next((name for name in names if name != REFERENCE), REFERENCE)
    results = [result for result in _results(run) if result.implementation == subject]
    lines = [
        _quote(subject, pass_, [result for result in results if result.pass_ == pass_])
        for pass_ in LONG_PASSES
    ]
    return "\n".join(line for line in lines if line)


def _quote(subject: str, pass_: str, results: Sequence[BenchResult]) -> str:
    """Return the line of one pass, empty where nothing of it was run."""
    timed = [result for result in results if result.seconds]
    failed = sum(result.status == FAILED for result in results)
    facts = [f"{failed} FAILED"] if failed else []
    ulps = [ulp for result in timed if (ulp := _worst_ulp(result)) is not None]
    if ulps:
        facts.insert(0, f"largest error {format_ulp(max(ulps))} ulp")
    ratios = [ratio for result in timed if (ratio := result.speedup.get(REFERENCE))]
    if ratios:
        cases = count(len(ratios), "case")
        mean = f"geometric mean of {cases}" if len(ratios) > 1 else cases
        speedup = _figure(geometric_mean(ratios))
        facts.insert(0, f"{speedup}x reference {LONG_PASSES[pass_]} ({mean})")
    elif timed:
        most = max(result.gbps or 0 for result in timed)
        cases = count(len(timed), "case")
        facts.insert(0, f"{LONG_PASSES[pass_]} at up to {_figure(most)} GB/s ({cases})")
    return f"{subject}: {', '.join(facts)}" if facts else ""


def _results(run: Run) -> list[BenchResult]:
    return [result for result in run.results if isinstance(result, BenchResult)]


def _name(case: Case, results: Sequence[BenchResult]) -> str:
    """Return the case's name without the dtype and reduction that the whole run shares."""
    words = case.name.split()
    for shared in ({r.case.dtype for r in results}, {r.case.reduction for r in results}):
        if len(shared) == 1:
            words.remove(shared.pop())
    return " ".join(words)


def _figures(result: BenchResult) -> list[str]:
    """Return the cells of a result, after the case."""
    cells = [SHORT_PASSES[result.pass_], shorten(result.implementation)]
    if result.seconds is None:
        return [*cells, result.status, *[""] * 5]
    ratio = result.speedup.get(REFERENCE)
    ulp, extra = _worst_ulp(result), result.peak_extra_bytes
    return [
        *cells,
        format_seconds(result.seconds.median),
        _spread(result.seconds),
        "-" if result.gbps is None else _figure(result.gbps),
        "-" if ratio is None else f"{_figure(ratio)}x",
        "-" if ulp is None else format_ulp(ulp),
        "-" if extra is None else format_bytes(extra),
    ]


def _spread(seconds: Seconds) -> str:
    """Return p20 and p80 in the unit of the median."""
    median = format_seconds(seconds.median)
    unit = float(median.split()[0]) / seconds.median
    return f"{_figure(seconds.p20 * unit)}-{_figure(seconds.p80 * unit)}"


def _figure(value: float) -> str:
    """Write a number in at most five characters, if it is one that a table should hold."""
    digits = max(3 - len(str(int(value))), 0)
    return f"{value:.{digits}f}" if value < 1e5 else f"{value:.0e}"


def _worst_ulp(result: BenchResult) -> float | None:
    """Return the larger of the errors of the loss and the gradient."""
    found = [u for u in (result.error.value_ulp, result.error.grad_ulp) if u is not None]
    return max(found, default=None)
