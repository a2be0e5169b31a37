"""The lines that name the cells in which losscli's own kernel is slower than its fastest peer."""

from __future__ import annotations

from losscli.compare.peers import Cell, best_peer, compared, ratio
from losscli.implementations import CUSTOM
from losscli.report.phrases import count, with_mode
from losscli.runs.records import Run
from losscli.units import format_seconds


def lines(run: Run) -> list[str]:
    """Return the count of cells in which custom is slower, and these cells."""
    found = compared(run)
    if not found:
        return []
    untimed = [cell for cell in found if cell[CUSTOM].seconds is None]
    slower = [cell for cell in found if cell.slower_than]
    short = [cell for cell in found if cell.too_short]
    total = count(len(found) - len(untimed), "cell")
    told = [f"custom is slower than the best peer in {len(slower)} of {total}"]
    told += [f"    {_describe(cell)}" for cell in slower]
    if short:
        told.append(
            f"custom is behind in {count(len(short), 'cell')} with too few samples to decide"
        )
        told += [f"    {_describe(cell)}" for cell in short]
    if untimed:
        told.append(f"custom was not timed in {count(len(untimed), 'cell')} where a peer was")
        told += [f"    {_name(cell)}: {cell[CUSTOM].status}" for cell in untimed]
    return told


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
