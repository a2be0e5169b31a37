"""Where losscli's own kernel is slower than the best of its peers, beyond what noise explains.

A cell is a case and a pass, in each table of the config; the peers are the implementations that are
not losscli's own. One is slower than another where the whole confidence interval of its median lies
above the whole interval of the other's.
"""

from __future__ import annotations

from collections.abc import Mapping

from losscli.bench.statistics import median_interval
from losscli.config.schema import DEVICE
from losscli.report.phrases import count
from losscli.results import BenchResult, Run, Seconds
from losscli.units import format_seconds

CUSTOM = "custom"

Cell = Mapping[str, BenchResult]
"""What was asked for in a case and pass, by implementation."""


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
    return list(gathered.values())


def best_peer(cell: Cell) -> BenchResult | None:
    """Return the fastest of what is not losscli's own."""
    peers = {
        result.seconds.median: result
        for name, result in cell.items()
        if result.seconds and name.partition(":")[0] != CUSTOM
    }
    return peers[min(peers)] if peers else None


def is_slower(cell: Cell) -> bool:
    """Tell whether custom is slower than its best peer by more than noise explains."""
    custom, peer = cell[CUSTOM].seconds, best_peer(cell)
    if custom is None or peer is None or peer.seconds is None:
        return False
    return _interval(custom)[0] > _interval(peer.seconds)[1]


def _interval(seconds: Seconds) -> tuple[float, float]:
    """Return the interval of a median; of few samples, all that they span."""
    return median_interval(seconds.samples) or (min(seconds.samples), max(seconds.samples))


def _name(cell: Cell) -> str:
    result = cell[CUSTOM]
    mode = "" if result.mode == DEVICE else f" {result.mode}"
    return f"{result.case.name}, {result.pass_.replace('_', '+')}{mode}"


def _describe(cell: Cell) -> str:
    """Say how fast custom is next to the peer that is faster."""
    custom, peer = cell[CUSTOM].seconds, best_peer(cell)
    assert custom
    assert peer
    assert peer.seconds
    times = f"{format_seconds(custom.median)} against {format_seconds(peer.seconds.median)}"
    ratio = peer.seconds.median / custom.median
    return f"{_name(cell)}: {ratio:.3f}x {peer.implementation} ({times})"
