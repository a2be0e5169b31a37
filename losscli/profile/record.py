"""The contents of a profile: a call's launches, and what bounds it."""

from __future__ import annotations

from typing import ClassVar, Literal

from losscli.cases.axes import PassName
from losscli.files.record import Record

Bound = Literal[
    "memory",
    "matrix products",
    "uncoalesced access",
    "too few warps",
    "instructions",
    "latency",
    "launches",
    "operators",
    "unknown",
]
"""What decides the time of a call, see :mod:`losscli.profile.bounds`."""


class Launch(Record, frozen=True):
    """One kernel launch on a GPU, or all calls of one operator on a CPU.

    Unknown values are None. Shares are from 0 to 1.
    """

    name: str
    seconds: float
    calls: int = 1
    blocks: int | None = None
    threads: int | None = None
    """Threads a block."""
    registers: int | None = None
    """Registers a thread."""
    occupancy: float | None = None
    """The warps that were on a multiprocessor, as a share of the most that it holds."""
    possible_occupancy: float | None = None
    """The share that registers, shared memory and the size of a block allow."""
    multiprocessors: int | None = None
    dram_bytes: float | None = None
    l2_bytes: float | None = None
    loaded_bytes: float | None = None
    """Bytes that loads of single threads touch, in whole sectors of 32; bulk copies go past it."""
    useful_loads: float | None = None
    """The share of these bytes that was asked for."""
    stored_bytes: float | None = None
    useful_stores: float | None = None
    issued: float | None = None
    """The share of its cycles in which a scheduler issued an instruction."""
    stall: str = ""
    """What warps waited for most."""
    stall_share: float | None = None
    """How much of their time they did."""

    @property
    def dram_gbps(self) -> float | None:
        """The rate of GPU memory traffic."""
        return self._rate(self.dram_bytes)

    @property
    def l2_gbps(self) -> float | None:
        """The rate of traffic between L1 and L2."""
        return self._rate(self.l2_bytes)

    def _rate(self, moved: float | None) -> float | None:
        return moved / self.seconds / 1e9 if moved is not None and self.seconds else None

    derived: ClassVar = {"dram_bytes": "dram_gbps", "l2_bytes": "l2_gbps"}


class Profile(Record, frozen=True, kw_only=True):
    """A profiler's and `losscli bench`'s results for one call."""

    case: str
    implementation: str
    pass_: PassName
    device: str
    profiler: str
    command: tuple[str, ...]
    """What ran under the profiler, and the profiler with its options."""
    seconds: float
    """The median time of a call, without a profiler."""
    limit_share: float | None = None
    """The time of losscli's limit, kernels that only move the bytes of the pass or its bare matrix
    products, over ``seconds``."""
    limit_gbps: float | None = None
    """The rate of kernels that only move bytes; None where matrix products are the limit."""
    launches: tuple[Launch, ...] = ()
    gap_seconds: float | None = None
    """How long the GPU rested between launches of the call, where the profiler tells."""
    bound: Bound = "unknown"
    why: str = ""
    """What the bound follows from."""
    notes: tuple[str, ...] = ()
    """What could not be read, and how it could be."""

    @property
    def busy_seconds(self) -> float:
        """The total time of all launches."""
        return sum(each.seconds for each in self.launches)

    derived: ClassVar = {"launches": "busy_seconds"}
