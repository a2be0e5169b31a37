"""The tables of a bench run: a row per implementation and pass, then a summary line.

A config with tables has one table each. ``case`` is the case's name, without the dtype and
reduction that all cases share; ``pass`` is ``fwd`` (no gradient) or ``fwd+bwd`` (the loss and the
gradient of the prediction), with the mode if it is not ``device``, and ``warm`` if only part of the
run has a warm cache. :mod:`losscli.runs.columns` has the other columns.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from statistics import geometric_mean

from losscli.cases.axes import CACHES, COLD, MODES, PASSES, WARM
from losscli.cases.case import distinct_names
from losscli.implementations import is_own
from losscli.report.phrases import count, with_mode
from losscli.report.tables import Tables, beside_case, shorten
from losscli.runs.columns import COLUMNS, LEAST_IMPORTANT, MARKS, REFERENCE, mark
from losscli.runs.grouping import grouped
from losscli.runs.judgements import IMPOSSIBLE
from losscli.runs.records import FAILED, SKIPPED, BenchResult, Run
from losscli.units import figure, format_ulp

SHORT_PASSES = {"forward": "fwd", "forward_backward": "fwd+bwd"}
LONG_PASSES = {"forward": "forward", "forward_backward": "forward+backward"}


def tables(run: Run, width: int | None, chosen: Sequence[str] = ()) -> Tables:
    """Return the title, headers and rows of each table.

    Rows are grouped by case, whose name is broken to stay within a width. A column of which the
    table has nothing to say is left out. With ``chosen``, names of columns, the tables have these
    and no others, whatever the width.
    """
    ran = _ran(run)
    mixed = {COLD, WARM} <= {result.cache for result in ran}
    names = distinct_names(result.case for result in ran)
    made = []
    for title, results in grouped(ran, lambda result: result.table).items():
        columns = [
            COLUMNS[name] for name in chosen or COLUMNS if chosen or COLUMNS[name].usual(results)
        ]
        groups = {
            case: [[*_row(r, mixed), *(column.cell(r) for column in columns)] for r in found]
            for case, found in grouped(results, lambda r: _name(names[r.case], ran)).items()
        }
        headers = ["pass", "impl", *(column.header for column in columns)]
        least = [] if chosen else [COLUMNS[name].header for name in LEAST_IMPORTANT]
        made.append((title, *beside_case(headers, groups, width, least)))
    return made


def _row(result: BenchResult, mixed: bool) -> tuple[str, str]:
    """Return what tells the rows of a case apart; ``mixed``: there are cold and warm caches."""
    warm = " warm" * (mixed and result.cache == WARM)
    return short_pass(result) + warm, shorten(result.implementation)


def _ran(run: Run) -> list[BenchResult]:
    return [result for result in run.of(BenchResult) if result.status != SKIPPED]


def legend(run: Run, headers: Collection[str]) -> str:
    """Return what the columns and marks of the tables mean."""
    results = _ran(run)
    marks = {mark(result) for result in results}
    own = any(is_own(result.implementation) for result in results)
    parts = [column.told for column in COLUMNS.values() if column.header in headers]
    if COLUMNS["speedup"].header in headers:
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
