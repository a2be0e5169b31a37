"""Where losscli's own kernel is slower than the best of its peers, beyond what noise explains.

A cell is a case and a pass, in each table of the config; the peers are the implementations that are
not losscli's own. One is slower than another where that is the verdict of their ratio, by intervals
so wide that all of a run hold at once: by those of 95 % that each ratio has, one in 40 calls equals
slower by chance. A record of the time before there were ratios has intervals of medians alone:
there the whole of one has to lie above the whole of the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from losscli.bench.statistics import jointly, median_interval
from losscli.report.phrases import count, with_mode
from losscli.results import SLOWER, BenchResult, Run, Seconds
from losscli.units import format_seconds

CUSTOM = "custom"

Cell = Mapping[str, BenchResult]
"""What was asked for in a case and pass, by implementation; the intervals of custom's are joint."""


def lines(run: Run) -> list[str]:
    """Return in how many cells custom is slower, then those cells; nothing without a peer."""
    compared = [cell for cell in cells(run) if CUSTOM in cell and best_peer(cell)]
    if not compared:
        return []
    untimed = [cell for cell in compared if cell[CUSTOM].seconds is None]
    slower = [cell for cell in compared if is_slower(cell)]
    total = count(len(compared) - len(untimed), "cell")
    told = [f"custom is slower than the best peer in {len(slower)} of {total}"]
    told += [f"    {_describe(cell)}" for cell in slower]
    if untimed:
        told.append(f"custom was not timed in {count(len(untimed), 'cell')} where a peer was")
        told += [f"    {_name(cell)}: {cell[CUSTOM].status}" for cell in untimed]
    return told


def cells(run: Run) -> list[Cell]:
    """Gather the results of each case and pass."""
    gathered: dict[tuple[str, str, str, str], dict[str, BenchResult]] = {}
    for result in run.results:
        if isinstance(result, BenchResult):
            key = (result.table, result.case.name, result.pass_, result.mode)
            gathered.setdefault(key, {})[result.implementation] = result
    comparisons = sum(len(_peers(cell)) for cell in gathered.values() if CUSTOM in cell)
    for cell in gathered.values():
        if CUSTOM in cell:
            custom = cell[CUSTOM]
            joint = {name: jointly(ratio, comparisons) for name, ratio in custom.ratios.items()}
            cell[CUSTOM] = replace(custom, ratios=joint)
    return list(gathered.values())


def best_peer(cell: Cell) -> BenchResult | None:
    """Return the peer that custom does worst against.

    One that custom is slower than, beyond what noise explains, is worse than one that may be ahead
    by chance. Where custom has no time, it is the fastest.
    """
    custom = cell.get(CUSTOM)

    def place(peer: BenchResult) -> tuple[bool, float]:
        assert peer.seconds
        if custom is None or custom.seconds is None:
            return False, peer.seconds.median
        return not _is_slower(custom, peer), ratio(custom, peer)

    return min(_peers(cell), key=place, default=None)


def is_slower(cell: Cell) -> bool:
    """Tell whether custom is slower than any of its peers by more than noise explains."""
    custom, peer = cell[CUSTOM], best_peer(cell)
    return custom.seconds is not None and peer is not None and _is_slower(custom, peer)


def ratio(custom: BenchResult, peer: BenchResult) -> float:
    """Return a peer's time over custom's, both of which were timed."""
    found = custom.ratios.get(peer.implementation)
    if found:
        return found.value
    assert custom.seconds
    assert peer.seconds
    return peer.seconds.median / custom.seconds.median


def _peers(cell: Cell) -> list[BenchResult]:
    return [r for name, r in cell.items() if r.seconds and name.partition(":")[0] != CUSTOM]


def _is_slower(custom: BenchResult, peer: BenchResult) -> bool:
    found = custom.ratios.get(peer.implementation)
    if found:
        return found.verdict == SLOWER
    assert custom.seconds
    assert peer.seconds
    return _interval(custom.seconds)[0] > _interval(peer.seconds)[1]


def _interval(seconds: Seconds) -> tuple[float, float]:
    """Return the interval of a median; of few samples, all that they span."""
    return median_interval(seconds.samples) or (min(seconds.samples), max(seconds.samples))


def _name(cell: Cell) -> str:
    result = cell[CUSTOM]
    return f"{result.case.name}, {with_mode(result.pass_.replace('_', '+'), result.mode)}"


def _describe(cell: Cell) -> str:
    """Say how fast custom is next to the peer that is faster."""
    custom, peer = cell[CUSTOM].seconds, best_peer(cell)
    assert custom
    assert peer
    assert peer.seconds
    times = f"{format_seconds(custom.median)} against {format_seconds(peer.seconds.median)}"
    times_faster = ratio(cell[CUSTOM], peer)
    return f"{_name(cell)}: {times_faster:.3f}x {peer.implementation} ({times})"
