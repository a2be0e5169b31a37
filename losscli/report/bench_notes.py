"""The lines below the tables of a bench: failures, missing figures, where custom is slower."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import geometric_mean

from losscli.compare.cells import Cell, best_peer, compared, ratio
from losscli.implementations import CUSTOM
from losscli.reasons import Code
from losscli.report.bench_table import LONG_PASSES, long_pass, what_was_timed
from losscli.report.phrases import count, first_of, skips
from losscli.report.tables import fill
from losscli.runs.columns import REFERENCE
from losscli.runs.grouping import grouped
from losscli.runs.records import FAILED, HOST_GAPS, BenchResult, Run
from losscli.units import figure, format_bytes, format_seconds, format_ulp

WORKSPACE_BYTES = 64 * 2**20
"""Bytes that a call may take beyond the plan without a note."""
ALLOCATORS_DIFFER = 0.1
"""Smallest change of a ratio by the default allocator that has a note."""

NAMED = 3
"""Cases that a note on disturbances names."""


def notes(run: Run) -> list[str]:
    """Return each failure and each impossible time; then the reasons for missing figures."""
    results = run.of(BenchResult)

    def reason(r: BenchResult) -> str:
        return f"{r.case.name}, {r.implementation}, {long_pass(r)}: {r.reason}"

    texts = [f"FAILED {reason(r)}" for r in results if r.status == FAILED]
    texts += [reason(r) for r in results if r.impossible]
    texts += [
        f"{r.case.name}, {r.implementation}, {LONG_PASSES[r.pass_]}: took "
        f"{format_bytes(r.peak_extra_bytes or 0)} beyond inputs, loss and gradient; "
        f"{format_bytes(r.planned_extra_bytes or 0)} were planned"
        for r in results
        if _outgrew(r)
    ]
    texts += _right_as_a_whole(results)
    texts += skips(results)
    texts += dict.fromkeys(f"limit not measured: {r.no_limit}" for r in results if r.no_limit)
    texts += dict.fromkeys(f"energy not readable: {r.no_energy}" for r in results if r.no_energy)
    texts += _default_allocator(results)
    texts += _conditions(results)
    return [fill(text) for text in texts]


def _outgrew(result: BenchResult) -> bool:
    """Tell whether a call took more memory than was planned, by more than a workspace."""
    if result.planned_extra_bytes is None or result.peak_extra_bytes is None:
        return False
    return result.peak_extra_bytes > result.planned_extra_bytes + WORKSPACE_BYTES


def _right_as_a_whole(results: Sequence[BenchResult]) -> list[str]:
    """Return a line for each loss of PyTorch's own functions that lose digits of elements."""
    lossy = (r for r in results if r.code == Code.NO_WORSE_THAN_TORCH)
    return [
        f"{name} of {loss} loses digits of single elements, up to "
        f"{format_ulp(max(r.error.ulp or 0.0 for r in found))} ulp in "
        f"{count(len(found), 'result')}: it is PyTorch's own, right as a whole, and has a time"
        for (name, loss), found in grouped(lossy, lambda r: (r.implementation, r.case.loss)).items()
    ]


def _default_allocator(results: Sequence[BenchResult]) -> list[str]:
    """Return the ratios with the default allocator, by implementation and pass."""
    reference = {
        (r.table, r.case, r.pass_, r.mode): r.default_allocator_seconds
        for r in results
        if r.implementation == REFERENCE
    }
    pairs: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for r in results:
        theirs = reference.get((r.table, r.case, r.pass_, r.mode))
        fair, own = r.speedup.get(REFERENCE), r.default_allocator_seconds
        if fair and own and theirs:
            pairs.setdefault((r.implementation, what_was_timed(r)), []).append((fair, theirs / own))
    texts = []
    for (name, pass_), each in pairs.items():
        fair, default = map(geometric_mean, zip(*each, strict=True))
        if max(fair / default, default / fair) > 1 + ALLOCATORS_DIFFER:
            texts.append(
                f"with the system's default allocator, which does not keep freed memory, {name} is "
                f"{figure(default)}x reference {pass_}, not {figure(fair)}x"
            )
    return texts


def _conditions(results: Sequence[BenchResult]) -> list[str]:
    """Return the disturbances of the machine, and the number of results that they affect."""
    timed = [result for result in results if result.conditions]
    of = f"of {count(len(timed), 'result')}"
    texts = []
    if busy := [result for result in timed if result.busy]:
        most = max(result.conditions["others"] for result in busy)
        what = "cores" if busy[0].case.device == "cpu" else "GPU"
        cases = first_of(dict.fromkeys(result.case.name for result in busy), NAMED)
        texts.append(
            f"the machine was busy: other programs took up to {most:.0%} of its {what} "
            f"during {len(busy)} {of}: {cases}"
        )
    if waited := sum(HOST_GAPS in result.conditions for result in timed):
        texts.append(f"the GPU waited for the host within samples of {waited} {of}")
    reasons = Counter(
        reason for result in timed for reason in result.conditions.get("throttle_reasons", ())
    )
    texts += [f"the GPU was throttled during {n} {of}: {reason}" for reason, n in reasons.items()]
    return texts


def slower_cells(run: Run) -> list[str]:
    """Return the count of cells in which custom is slower than its fastest peer, and the cells."""
    found = compared(run)
    if not found:
        return []
    untimed = [cell for cell in found if cell[CUSTOM].seconds is None]
    slower = [cell for cell in found if cell.slower_than]
    short = [cell for cell in found if cell.too_short]
    total = count(len(found) - len(untimed), "cell")
    lines = [f"custom is slower than the best peer in {len(slower)} of {total}"]
    lines += map(_describe, slower)
    if short:
        cells = count(len(short), "cell")
        lines.append(f"custom is behind in {cells} with too few samples to decide")
        lines += map(_describe, short)
    if untimed:
        lines.append(f"custom was not timed in {count(len(untimed), 'cell')} where a peer was")
        lines += [f"{_name(cell)}: {cell[CUSTOM].status}" for cell in untimed]
    return lines


def _name(cell: Cell) -> str:
    return f"    {cell[CUSTOM].case.name}, {long_pass(cell[CUSTOM])}"


def _describe(cell: Cell) -> str:
    """Say how fast custom is next to the peer that is faster."""
    custom, peer = cell[CUSTOM].seconds, best_peer(cell)
    assert custom
    assert peer
    assert peer.seconds
    times = f"{format_seconds(custom.median)} against {format_seconds(peer.seconds.median)}"
    return f"{_name(cell)}: {ratio(cell[CUSTOM], peer):.3f}x {peer.implementation} ({times})"
