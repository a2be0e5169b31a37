"""The report of a bench run: a row per implementation and pass, then a summary line.

A config with tables has one table each. Columns: ``case`` is the case's name, without the dtype and
reduction that all cases share; ``pass`` is ``fwd`` (no gradient) or ``fwd+bwd`` (the loss and the
gradient of the prediction), with the mode if it is not ``device``, and ``warm`` if only part of the
run has a warm cache; ``median`` and ``p20-p80`` are the time of one call, both in the same unit;
``GB/s`` is the fewest bytes of the pass over the median; ``% of limit`` is that speed over the
speed of kernels that only move the same bytes, IMPOSSIBLE if it is too high to be true; ``host`` is
how long a call keeps the host busy, shown where small cases ran on a GPU; ``vs ref`` is the time of
the reference over this one, after ``=`` where the two are the same and after ``?`` where the
samples do not decide; ``ulp`` is the largest error against the oracle, of the loss or of an element
of the gradient, in units in the last place; ``extra`` is the most memory that a call takes beyond
its inputs, loss and gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from statistics import geometric_mean

from losscli.axes import CACHES, COLD, MODES, WARM
from losscli.cases import distinct_names
from losscli.implementations import is_own
from losscli.report import bench_legend
from losscli.report.phrases import count, format_ulp, skips, with_mode
from losscli.report.tables import IMPOSSIBLE, beside_case, fill, shorten
from losscli.runs.judgements import SAME, UNCLEAR
from losscli.runs.records import (
    FAILED,
    HOST_GAPS,
    NO_WORSE_THAN_TORCH,
    SKIPPED,
    BenchResult,
    Run,
    Seconds,
)
from losscli.units import format_bytes, format_seconds

LEAST_IMPORTANT = ("p20-p80", "extra", "host", "ulp", "GB/s", "% of\nlimit")
"""Columns that a narrow terminal goes without, the first one first."""
SHORT_PASSES = {"forward": "fwd", "forward_backward": "fwd+bwd"}
LONG_PASSES = {"forward": "forward", "forward_backward": "forward+backward"}
REFERENCE = "reference"
WORKSPACE_BYTES = 64 * 2**20
"""Bytes that a call may take beyond the plan without a note."""
ALLOCATORS_DIFFER = 0.1
"""Smallest change of a ratio by the default allocator that has a note."""
SMALL = 2**16
"""Largest number of elements of a case for which the host column is shown."""


def tables(run: Run, width: int | None) -> list[tuple[str, list[str], list[list[str]]]]:
    """Return the title, headers and rows of each table.

    Rows are grouped by case, whose name is broken to stay within a width. A column of which the
    table has nothing to say is left out.
    """
    ran = [result for result in _results(run) if result.status != SKIPPED]
    mixed = {COLD, WARM} <= {result.cache for result in ran}
    by_title: dict[str, list[BenchResult]] = {}
    for result in ran:
        by_title.setdefault(result.table, []).append(result)
    made = []
    names = distinct_names(result.case for result in ran)
    for title, results in by_title.items():
        columns = _columns(results, mixed)
        groups: dict[str, list[list[str]]] = {}
        for result in results:
            row = [cell(result) for cell in columns.values()]
            groups.setdefault(_name(names[result.case], ran), []).append(row)
        made.append((title, *beside_case(list(columns), groups, width, LEAST_IMPORTANT)))
    return made


def _columns(
    results: Sequence[BenchResult], mixed: bool
) -> dict[str, Callable[[BenchResult], str]]:
    """Return the function of each column's cells, by header; ``mixed``: cold and warm caches."""
    versus = _timed(lambda r: r.speedup.get(REFERENCE), lambda ratio: f"{_figure(ratio)}x")
    columns: dict[str, Callable[[BenchResult], str]] = {
        "pass": lambda r: _short_pass(r) + " warm" * (mixed and r.cache == WARM),
        "impl": lambda result: shorten(result.implementation),
        "median": lambda r: format_seconds(r.seconds.median) if r.seconds else r.status,
        "p20-p80": lambda result: _spread(result.seconds) if result.seconds else "",
        "GB/s": _timed(lambda result: result.gbps, _figure),
        "% of\nlimit": _limit,
        "host": _timed(lambda result: result.host_seconds, lambda t: format_seconds(t, 3)),
        "vs ref": lambda result: _mark(result) + versus(result),
        "ulp": _timed(_worst_ulp, format_ulp),
        "extra": _timed(lambda result: result.peak_extra_bytes, format_bytes),
    }
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


def _mark(result: BenchResult) -> str:
    """Return the mark before a ratio that is neither faster nor slower."""
    ratio = result.ratios.get(REFERENCE)
    return {SAME: "=", UNCLEAR: "?"}.get(ratio.verdict, "") if ratio else ""


def _limit(result: BenchResult) -> str:
    if result.impossible:
        return IMPOSSIBLE
    return _timed(lambda r: r.limit_share, lambda share: f"{100 * share:.1f}")(result)


def legend(run: Run, headers: Collection[str]) -> str:
    """Return what the columns and marks of the tables mean."""
    results = [result for result in _results(run) if result.status != SKIPPED]
    own = any(is_own(result.implementation) for result in results)
    return bench_legend.text(headers, {_mark(result) for result in results}, own)


def notes(run: Run) -> list[str]:
    """Return each failure and each impossible time; then the reasons for missing figures."""
    results = _results(run)
    texts = [
        f"FAILED {r.case.name}, {r.implementation}, {_long_pass(r)}: {r.reason}"
        for r in results
        if r.status == FAILED
    ]
    texts += [
        f"{r.case.name}, {r.implementation}, {_long_pass(r)}: {r.reason}"
        for r in results
        if r.impossible
    ]
    texts += [
        f"{r.case.name}, {r.implementation}, {LONG_PASSES[r.pass_]}: took "
        f"{format_bytes(r.peak_extra_bytes or 0)} beyond inputs, loss and gradient; "
        f"{format_bytes(r.planned_extra_bytes or 0)} were planned"
        for r in results
        if _outgrew(r)
    ]
    texts += _right_as_a_whole(results)
    texts += skips(results)
    texts += dict.fromkeys(
        f"memory limit not measured: {r.no_limit}" for r in results if r.no_limit
    )
    texts += _default_allocator(results)
    texts += _conditions(results)
    return [fill(text) for text in texts]


def _right_as_a_whole(results: Sequence[BenchResult]) -> list[str]:
    """Return a line for each loss of PyTorch's own functions that lose digits of elements."""
    worst: dict[tuple[str, str], list[float]] = {}
    for r in results:
        if r.code == NO_WORSE_THAN_TORCH:
            worst.setdefault((r.implementation, r.case.loss), []).append(_worst_ulp(r) or 0.0)
    return [
        f"{name} of {loss} loses digits of single elements, up to {format_ulp(max(ulps))} ulp in "
        f"{count(len(ulps), 'result')}: it is PyTorch's own, right as a whole, and has a time"
        for (name, loss), ulps in worst.items()
    ]


def _default_allocator(results: Sequence[BenchResult]) -> list[str]:
    """Return the ratios with the default allocator, by implementation and pass."""
    reference = {
        (r.table, r.case, r.pass_, r.mode): r.default_allocator_seconds
        for r in results
        if r.implementation == REFERENCE
    }
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for r in results:
        theirs = reference.get((r.table, r.case, r.pass_, r.mode))
        fair, own = r.speedup.get(REFERENCE), r.default_allocator_seconds
        if fair and own and theirs:
            found.setdefault((r.implementation, _what_was_timed(r)), []).append(
                (fair, theirs / own)
            )
    texts = []
    for (name, pass_), pairs in found.items():
        fair, default = (geometric_mean(each) for each in zip(*pairs, strict=True))
        if max(fair / default, default / fair) > 1 + ALLOCATORS_DIFFER:
            texts.append(
                f"with the system's default allocator, which does not keep freed memory, {name} is "
                f"{_figure(default)}x reference {pass_}, not {_figure(fair)}x"
            )
    return texts


def _conditions(results: Sequence[BenchResult]) -> list[str]:
    """Return the disturbances of the machine, and the number of results that they affect."""
    timed = [result for result in results if result.conditions]
    of = f"of {count(len(timed), 'result')}"
    texts = []
    if busy := [result.conditions["others"] for result in timed if result.busy]:
        texts.append(
            f"the machine was busy: other programs took up to {max(busy):.0%} of its cores "
            f"during {len(busy)} {of}"
        )
    if waited := sum(HOST_GAPS in result.conditions for result in timed):
        texts.append(f"the GPU waited for the host within samples of {waited} {of}")
    reasons: dict[str, int] = {}
    for result in timed:
        for reason in result.conditions.get("throttle_reasons", ()):
            reasons[reason] = reasons.get(reason, 0) + 1
    texts += [f"the GPU was throttled during {n} {of}: {reason}" for reason, n in reasons.items()]
    return texts


def _outgrew(result: BenchResult) -> bool:
    """Tell whether a call took more memory than was planned, by more than a workspace."""
    if result.planned_extra_bytes is None or result.peak_extra_bytes is None:
        return False
    return result.peak_extra_bytes > result.planned_extra_bytes + WORKSPACE_BYTES


def summary(run: Run) -> str:
    """Return a summary line for each pass, about the first implementation except the reference."""
    names = list(dict.fromkeys(result.implementation for result in _results(run)))
    subject = next((name for name in names if name != REFERENCE), REFERENCE)
    results = [result for result in _results(run) if result.implementation == subject]
    lines = [
        _quote(subject, name, [result for result in results if _what_was_timed(result) == name])
        for name in dict.fromkeys(_what_was_timed(r) for r in sorted(results, key=_place))
    ]
    return "\n".join(line for line in lines if line)


def _quote(subject: str, pass_: str, results: Sequence[BenchResult]) -> str:
    """Return the line of one pass, empty where nothing of it was run."""
    timed = [result for result in results if result.seconds]
    failed = sum(result.status == FAILED for result in results)
    impossible = sum(result.impossible for result in results)
    facts = [f"{failed} FAILED"] if failed else []
    facts += [f"{impossible} {IMPOSSIBLE}"] if impossible else []
    ulps = [ulp for result in timed if (ulp := _worst_ulp(result)) is not None]
    if ulps:
        facts.insert(0, f"largest error {format_ulp(max(ulps))} ulp")
    ratios = [ratio for result in timed if (ratio := result.speedup.get(REFERENCE))]
    if ratios:
        cases = count(len(ratios), "case")
        mean = f"geometric mean of {cases}" if len(ratios) > 1 else cases
        speedup = _figure(geometric_mean(ratios))
        facts.insert(0, f"{speedup}x reference {pass_} ({mean})")
    elif timed:
        most = max(result.gbps or 0 for result in timed)
        cases = count(len(timed), "case")
        facts.insert(0, f"{pass_} at up to {_figure(most)} GB/s ({cases})")
    return f"{subject}: {', '.join(facts)}" if facts else ""


def _short_pass(result: BenchResult) -> str:
    return with_mode(SHORT_PASSES[result.pass_], result.mode)


def _long_pass(result: BenchResult) -> str:
    return with_mode(LONG_PASSES[result.pass_], result.mode)


def _what_was_timed(result: BenchResult) -> str:
    """Return the name of a pass, mode and warm cache in a sentence."""
    name = _long_pass(result)
    return f"{name} with a warm cache" if result.cache == WARM else name


def _place(result: BenchResult) -> tuple[int, ...]:
    """Return the sort key of the line of a pass, mode and state of the cache."""
    passes = list(LONG_PASSES)
    return MODES.index(result.mode), CACHES.index(result.cache), passes.index(result.pass_)


def _results(run: Run) -> list[BenchResult]:
    return [result for result in run.results if isinstance(result, BenchResult)]


def _name(name: str, results: Sequence[BenchResult]) -> str:
    """Return a case's name without the dtype and reduction that the whole run shares."""
    words = name.split()
    for shared in ({r.case.dtype for r in results}, {r.case.reduction for r in results}):
        if len(shared) == 1:
            words.remove(shared.pop())
    return " ".join(words)


def _spread(seconds: Seconds) -> str:
    """Return p20 and p80 in the unit of the median."""
    median = format_seconds(seconds.median)
    unit = float(median.split()[0]) / seconds.median
    return f"{_figure(seconds.p20 * unit)}-{_figure(seconds.p80 * unit)}"


def _figure(value: float) -> str:
    """Write a number in about five characters."""
    digits = max(3 - len(str(int(value))), 0)
    return f"{value:.{digits}f}" if value < 1e5 else f"{value:.0e}"


def _worst_ulp(result: BenchResult) -> float | None:
    """Return the larger of the errors of the loss and the gradient."""
    found = [u for u in (result.error.value_ulp, result.error.grad_ulp) if u is not None]
    return max(found, default=None)
