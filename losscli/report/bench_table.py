"""The tables of a bench run: a row per implementation and pass, then a summary line.

A config with tables has one table each. ``case`` is the case's name, without the dtype and
reduction that all cases share; ``pass`` is ``fwd`` (no gradient) or ``fwd+bwd`` (the loss and the
gradient of the prediction), with the mode if it is not ``device``, and ``warm`` if only part of the
run has a warm cache. ``% of limit`` is IMPOSSIBLE if it is too high to be true; ``host`` is shown
where small cases ran on a GPU. ``COLUMNS`` says what the other columns are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from statistics import geometric_mean

from losscli.axes import CACHES, COLD, MODES, PASSES, WARM
from losscli.cases import distinct_names
from losscli.grouping import grouped
from losscli.implementations import is_own
from losscli.report.phrases import count, format_ulp, with_mode
from losscli.report.tables import IMPOSSIBLE, Tables, beside_case, shorten
from losscli.runs.judgements import SAME, UNCLEAR
from losscli.runs.records import FAILED, SKIPPED, BenchResult, Run, Seconds
from losscli.units import format_bytes, format_seconds

LEAST_IMPORTANT = ("p20-p80", "extra", "host", "ulp", "GB/s", "TFLOP/s", "% of\nlimit")
"""Columns that a narrow terminal goes without, the first one first."""
COLUMNS = {
    "median": "median, p20-p80: time of a call",
    "GB/s": "GB/s: the fewest bytes of the pass over the median",
    "TFLOP/s": "TFLOP/s: the additions and multiplications of the matrix products over the median",
    "% of\nlimit": "% of limit: the time of kernels that only move these bytes, or of hidden "
    "states of the matrix products alone, over the median",
    "host": "host: how long a call keeps the host busy",
    "vs ref": "vs ref: the time of the reference over this one",
    "ulp": "ulp: the largest error in units in the last place; 2 of a mean or sum and 4 of an "
    "element always pass",
    "extra": "extra: memory beyond inputs, loss and gradient",
}
"""What the columns mean, by header."""
MARKS = {"=": "=: as fast", "?": "?: too few or too scattered samples to decide"}
"""What stands before a ratio that is neither faster nor slower."""
SHORT_PASSES = {"forward": "fwd", "forward_backward": "fwd+bwd"}
LONG_PASSES = {"forward": "forward", "forward_backward": "forward+backward"}
REFERENCE = "reference"
SMALL = 2**16
"""Largest number of elements of a case for which the host column is shown."""


def tables(run: Run, width: int | None) -> Tables:
    """Return the title, headers and rows of each table.

    Rows are grouped by case, whose name is broken to stay within a width. A column of which the
    table has nothing to say is left out.
    """
    ran = _ran(run)
    mixed = {COLD, WARM} <= {result.cache for result in ran}
    names = distinct_names(result.case for result in ran)
    made = []
    for title, results in grouped(ran, lambda result: result.table).items():
        columns = _columns(results, mixed)
        groups = {
            case: [[cell(result) for cell in columns.values()] for result in found]
            for case, found in grouped(results, lambda r: _name(names[r.case], ran)).items()
        }
        made.append((title, *beside_case(list(columns), groups, width, LEAST_IMPORTANT)))
    return made


def _ran(run: Run) -> list[BenchResult]:
    return [result for result in run.of(BenchResult) if result.status != SKIPPED]


def _columns(
    results: Sequence[BenchResult], mixed: bool
) -> dict[str, Callable[[BenchResult], str]]:
    """Return the function of each column's cells, by header; ``mixed``: cold and warm caches."""
    share = _timed(lambda r: r.limit_share, lambda share: f"{100 * share:.1f}")
    versus = _timed(lambda r: r.speedup.get(REFERENCE), lambda ratio: f"{figure(ratio)}x")
    columns: dict[str, Callable[[BenchResult], str]] = {
        "pass": lambda r: short_pass(r) + " warm" * (mixed and r.cache == WARM),
        "impl": lambda r: shorten(r.implementation),
        "median": lambda r: format_seconds(r.seconds.median) if r.seconds else r.status,
        "p20-p80": lambda r: _quantiles(r.seconds) if r.seconds else "",
        "GB/s": _timed(lambda r: None if r.operations else r.gbps, figure),
        "TFLOP/s": _timed(lambda r: r.teraflops, lambda speed: f"{speed:.3g}"),
        "% of\nlimit": lambda r: IMPOSSIBLE if r.impossible else share(r),
        "host": _timed(lambda r: r.host_seconds, lambda seconds: format_seconds(seconds, 3)),
        "vs ref": lambda r: mark(r) + versus(r),
        "ulp": _timed(lambda r: r.error.ulp, format_ulp),
        "extra": _timed(lambda r: r.peak_extra_bytes, format_bytes),
    }
    limited = {bool(result.operations) for result in results}
    if limited == {True}:
        del columns["GB/s"]
    if True not in limited:
        del columns["TFLOP/s"]
    if not any(result.limit_gbps for result in results):
        del columns["% of\nlimit"]
    if not any(result.host_seconds and result.case.elements <= SMALL for result in results):
        del columns["host"]
    return columns


def _timed(
    value: Callable[[BenchResult], float | None], text: Callable[[float], str]
) -> Callable[[BenchResult], str]:
    """Return a cell: nothing where nothing was timed, a dash where there is no value."""

    def cell(result: BenchResult) -> str:
        if result.seconds is None:
            return ""
        found = value(result)
        return "-" if found is None else text(found)

    return cell


def mark(result: BenchResult, other: str = REFERENCE) -> str:
    """Return the mark before the ratio to another implementation; see ``MARKS``."""
    ratio = result.ratios.get(other)
    return {SAME: "=", UNCLEAR: "?"}.get(ratio.verdict, "") if ratio else ""


def legend(run: Run, headers: Collection[str]) -> str:
    """Return what the columns and marks of the tables mean."""
    results = _ran(run)
    marks = {mark(result) for result in results}
    own = any(is_own(result.implementation) for result in results)
    parts = [meaning for header, meaning in COLUMNS.items() if header in headers]
    parts += [meaning for sign, meaning in MARKS.items() if sign in marks]
    return "; ".join([*parts, *["custom: losscli's own kernel"] * own])


def summary(run: Run) -> str:
    """Return a summary line for each pass, about the first implementation except the reference."""
    everything = run.of(BenchResult)
    names = dict.fromkeys(result.implementation for result in everything)
    subject = next((name for name in names if name != REFERENCE), REFERENCE)
    results = [result for result in everything if result.implementation == subject]
    lines = [
        _quote(subject, name, found)
        for name, found in grouped(sorted(results, key=place), what_was_timed).items()
    ]
    return "\n".join(line for line in lines if line)


def _quote(subject: str, pass_: str, results: Sequence[BenchResult]) -> str:
    """Return the line of one pass, empty where nothing of it was run."""
    timed = [result for result in results if result.seconds]
    ratios = [ratio for result in timed if (ratio := result.speedup.get(REFERENCE))]
    ulps = [result.error.ulp for result in timed if result.error.ulp is not None]
    parts = []
    if ratios:
        cases = count(len(ratios), "case")
        mean = f"geometric mean of {cases}" if len(ratios) > 1 else cases
        parts.append(f"{figure(geometric_mean(ratios))}x reference {pass_} ({mean})")
    elif timed:
        fastest = max(timed, key=lambda r: r.teraflops or r.gbps or 0)
        speed = f"{figure(fastest.gbps or 0)} GB/s"
        if fastest.teraflops:
            speed = f"{fastest.teraflops:.3g} TFLOP/s"
        parts.append(f"{pass_} at up to {speed} ({count(len(timed), 'case')})")
    if ulps:
        parts.append(f"largest error {format_ulp(max(ulps))} ulp")
    if failed := sum(result.status == FAILED for result in results):
        parts.append(f"{failed} FAILED")
    if impossible := sum(result.impossible for result in results):
        parts.append(f"{impossible} {IMPOSSIBLE}")
    return f"{subject}: {', '.join(parts)}" if parts else ""


def short_pass(result: BenchResult) -> str:
    """Return ``fwd``, or ``fwd+bwd host``."""
    return with_mode(SHORT_PASSES[result.pass_], result.mode)


def long_pass(result: BenchResult) -> str:
    """Return ``forward``, or ``forward+backward host``."""
    return with_mode(LONG_PASSES[result.pass_], result.mode)


def what_was_timed(result: BenchResult) -> str:
    """Return the name of a pass, mode and warm cache in a sentence."""
    name = long_pass(result)
    return f"{name} with a warm cache" if result.cache == WARM else name


def place(result: BenchResult) -> tuple[int, ...]:
    """Return the sort key of a pass, mode and state of the cache."""
    return MODES.index(result.mode), CACHES.index(result.cache), PASSES.index(result.pass_)


def _name(name: str, results: Sequence[BenchResult]) -> str:
    """Return a case's name without the dtype and reduction that the whole run shares."""
    words = name.split()
    for shared in ({r.case.dtype for r in results}, {r.case.reduction for r in results}):
        if len(shared) == 1:
            words.remove(shared.pop())
    return " ".join(words)


def _quantiles(seconds: Seconds) -> str:
    """Return p20 and p80 in the unit of the median."""
    median = format_seconds(seconds.median)
    unit = float(median.split()[0]) / seconds.median
    return f"{figure(seconds.p20 * unit)}-{figure(seconds.p80 * unit)}"


def figure(value: float) -> str:
    """Write a number in about five characters."""
    digits = max(3 - len(str(int(value))), 0)
    return f"{value:.{digits}f}" if value < 1e5 else f"{value:.0e}"
