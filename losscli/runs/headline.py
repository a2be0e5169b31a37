"""What a bench comes to: the cells in which losscli's own kernel is slower than a peer."""

from __future__ import annotations

from losscli.axes import Mode, PassName
from losscli.record import Record


class Loss(Record, frozen=True):
    """A cell in which losscli's own kernel is slower than a peer, beyond what noise explains."""

    case: str
    """Its name."""
    pass_: PassName
    mode: Mode
    table: str
    peer: str
    """The peer against which the kernel is worst."""
    ratio: float
    """The peer's time over the kernel's, below 1."""


class Headline(Record, frozen=True):
    """The headline of a bench run: the cells in which losscli's own kernel is slower."""

    cells: int
    """Cases and passes in which both the kernel and a peer were timed."""
    slower: tuple[Loss, ...] = ()
    too_short: int = 0
    """Cells in which the kernel was behind in too few rounds for any test to tell."""
    untimed: int = 0
    """Cells in which a peer was timed and the kernel was not."""
