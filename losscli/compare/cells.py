"""The cells in which losscli's kernel is slower than its fastest peer, beyond noise.

A cell is a case and a pass of one table; peers are implementations that are not losscli's. The sign
test counts the rounds in which custom was behind by more than a hundredth. Holm's method keeps the
risk below ``RISK`` that a run calls any equal cell slower; of hundreds of single ratios, some look
slower by chance. Rounds of one process are alike, so with several processes the ratio's own verdict
has to be slower too.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from losscli.compare.row_keys import median_of
from losscli.implementations import CUSTOM, is_own
from losscli.runs.grouping import grouped
from losscli.runs.judgements import DIFFERENT_BEYOND, SLOWER
from losscli.runs.records import BenchResult, Headline, Run, SlowerCell

RISK = 0.01


class Cell(dict[str, BenchResult]):
    """The results of a case and pass, by implementation."""

    slower_than: frozenset[str] = frozenset()
    too_short: bool = False
    """Whether custom was behind, but in too few rounds for a test."""

    @property
    def peers(self) -> list[BenchResult]:
        """The timed peers."""
        return [r for name, r in self.items() if r.seconds and not is_own(name)]


def headline(run: Run) -> Headline | None:
    """Count and name the cells in which custom is slower; None without peers."""
    found = compared(run)
    if not found:
        return None
    untimed = sum(cell[CUSTOM].seconds is None for cell in found)
    slower = tuple(_slower(cell) for cell in found if cell.slower_than)
    short = sum(cell.too_short for cell in found)
    return Headline(len(found) - untimed, slower, short, untimed)


def compared(run: Run) -> list[Cell]:
    """Return the cells with custom and a timed peer."""
    return [cell for cell in cells(run) if CUSTOM in cell and cell.peers]


def _slower(cell: Cell) -> SlowerCell:
    custom, peer = cell[CUSTOM], best_peer(cell)
    assert peer
    row = custom.case.name, custom.pass_, custom.mode, custom.table
    return SlowerCell(*row, peer.implementation, ratio(custom, peer))


def cells(run: Run) -> list[Cell]:
    """Gather the results of each case and pass, and test them."""
    by_cell = grouped(run.of(BenchResult), lambda r: (r.table, r.case, r.pass_, r.mode))
    found = [Cell((r.implementation, r) for r in results) for results in by_cell.values()]
    _test(found)
    return found


def best_peer(cell: Cell) -> BenchResult | None:
    """Return the peer against which custom is worst; the fastest if custom has no time."""
    custom = cell.get(CUSTOM)

    def place(peer: BenchResult) -> tuple[bool, float]:
        if custom is None or custom.seconds is None:
            return False, median_of(peer)
        return peer.implementation not in cell.slower_than, ratio(custom, peer)

    return min(cell.peers, key=place, default=None)


def ratio(custom: BenchResult, peer: BenchResult) -> float:
    """Return a timed peer's time over custom's."""
    found = custom.ratios.get(peer.implementation)
    return found.value if found else median_of(peer) / median_of(custom)


def is_behind(custom: BenchResult, peer: BenchResult) -> bool:
    """Tell whether custom is slower by more than a hundredth, noise aside."""
    return ratio(custom, peer) < 1 / (1 + DIFFERENT_BEYOND)


class _Comparison(NamedTuple):
    """Custom against one peer, and the probability of being behind so often by chance."""

    cell: Cell
    peer: str
    rounds: int
    chance: float


def _test(found: Sequence[Cell]) -> None:
    """Set in each cell the peers that custom is slower than, and whether rounds were too few."""
    comparisons = [
        _compare(cell, cell[CUSTOM], peer)
        for cell in found
        if CUSTOM in cell and cell[CUSTOM].seconds
        for peer in cell.peers
    ]
    left = len(comparisons)
    for each in sorted(comparisons, key=lambda comparison: comparison.chance):
        if each.chance > RISK / left:
            break
        each.cell.slower_than |= {each.peer}
        left -= 1
    for each in comparisons:
        behind = is_behind(each.cell[CUSTOM], each.cell[each.peer])
        if behind and not each.cell.slower_than and 0.5**each.rounds > RISK / left:
            each.cell.too_short = True


def _compare(cell: Cell, custom: BenchResult, peer: BenchResult) -> _Comparison:
    assert custom.seconds
    assert peer.seconds
    own, theirs = custom.seconds.samples, peer.seconds.samples
    pairs = list(zip(own, theirs, strict=True)) if len(own) == len(theirs) else []
    behind = sum(its * (1 + DIFFERENT_BEYOND) < ours for ours, its in pairs)
    found = custom.ratios.get(peer.implementation)
    if found and found.processes and found.verdict != SLOWER:  # the processes disagree
        behind = 0
    return _Comparison(cell, peer.implementation, len(pairs), _at_least(behind, len(pairs)))


def _at_least(heads: int, tosses: int) -> float:
    """Return the probability that a fair coin shows at least so many heads."""
    if 2 * heads <= tosses:
        return 1.0
    ways = sum(math.comb(tosses, n) for n in range(heads, tosses + 1))
    return ways / (1 << tosses)
