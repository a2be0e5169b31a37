"""The contents of a profile: a call's launches, and what bounds it."""

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
"""What decides the time of a call; see losscli/profile/session.py."""


class Launch(Record, frozen=True):
    """One kernel launch on a GPU, or an operator's calls on a CPU; shares are from 0 to 1."""

    name: str
    seconds: float
    calls: int = 1
    blocks: int | None = None
    threads: int | None = None
    """Threads per block."""
    registers: int | None = None
    """Registers per thread."""
    occupancy: float | None = None
    """Warps on a multiprocessor, as a share of the maximum."""
    possible_occupancy: float | None = None
    """The share that registers, shared memory and block size allow."""
    multiprocessors: int | None = None
    dram_bytes: float | None = None
    l2_bytes: float | None = None
    loaded_bytes: float | None = None
    """Bytes that single threads' loads touch, in sectors of 32, without bulk copies."""
    useful_loads: float | None = None
    """The share of these bytes that was requested."""
    stored_bytes: float | None = None
    useful_stores: float | None = None
    issued: float | None = None
    """The share of cycles in which a scheduler issued an instruction."""
    stall: str = ""
    """What warps waited for most."""
    stall_share: float | None = None
    """The share of their time."""

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
    """The command under the profiler, with the profiler and its options."""
    seconds: float
    """The median time of a call, without a profiler."""
    peak_fraction: float | None = None
    """The limit's time over ``seconds``: a copy kernel's, or the bare matrix products'."""
    limit_gbps: float | None = None
    """The copy kernel's rate; None if matrix products are the limit."""
    launches: tuple[Launch, ...] = ()
    gap_seconds: float | None = None
    """The GPU's idle time between launches, if known."""
    bound: Bound = "unknown"
    why: str = ""
    """The reason for the bound."""
    notes: tuple[str, ...] = ()
    """What could not be read, and how it could be."""

    @property
    def busy_seconds(self) -> float:
        """The total time of all launches."""
        return sum(each.seconds for each in self.launches)

    derived: ClassVar = {"launches": "busy_seconds"}
