"""Profile a call: run it under a profiler, and decide what bounds it, from its longest launch."""

import shlex
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from losscli.errors import UnfitError
from losscli.profile import nsight_compute, torch_profiler
from losscli.profile.record import Bound, Launch, Profile
from losscli.runs.records import BenchResult

BUSY = 0.5
"""The fraction of a call's time with kernels running, below which launches decide."""
USEFUL = 0.5
"""The used fraction of touched sectors, below which access is uncoalesced."""
LOADED = 0.5
"""Bytes that loads or stores must touch to count, relative to memory traffic."""
NEAR = 0.85
"""The fraction of the limit's rate from which memory decides."""
FEW = 0.25
"""The fraction of a multiprocessor's warps, below which there are too few."""
ISSUED = 0.6
"""The fraction of a scheduler's cycles from which instructions decide."""


def profile(
    result: BenchResult, bare: Sequence[str], notify: Callable[[str], None] = lambda note: None
) -> tuple[Profile, bytes]:
    """Profile what was timed; also return the profiler's report: ncu's, or a trace.

    ``bare`` is the command that only makes the calls; UnfitError if it fails under the profiler.
    """
    assert result.seconds is not None
    notes: list[str] = []
    gap: float | None = None
    name = torch_profiler.NAME
    with TemporaryDirectory(prefix="losscli-") as folder:
        kept = Path(folder) / "report.ncu-rep"
        if result.case.device != "cpu":
            try:
                command = nsight_compute.command(kept.with_suffix(""), bare)
                notify(shlex.join(command))
                launches = nsight_compute.run(command, kept)
                name = nsight_compute.PROGRAM
            except nsight_compute.NoCountersError as error:
                notes.append(str(error))
        if name == torch_profiler.NAME:
            kept = Path(folder) / "trace.json"
            command = (*bare, "--trace", str(kept))
            notify(shlex.join(command))
            launches, gap = torch_profiler.read(_traced(command, kept))
        raw = kept.read_bytes()
    # Matrix products are not a memory limit.
    limit_gbps = None if result.operations else result.limit_gbps
    bound, why = decide(launches, result.seconds.median, result.limit_share, limit_gbps)
    found = Profile(
        case=result.case.name,
        implementation=result.implementation,
        pass_=result.pass_,
        device=result.case.device,
        profiler=name,
        command=command,
        seconds=result.seconds.median,
        peak_fraction=result.limit_share,
        limit_gbps=limit_gbps,
        launches=launches,
        gap_seconds=gap,
        bound=bound,
        why=why,
        notes=tuple(notes),
    )
    return found, raw


def _traced(command: Sequence[str], trace: Path) -> str:
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode or not trace.exists():
        said = (ended.stderr or ended.stdout).strip().splitlines()
        raise UnfitError(f"the call failed under the profiler: {(said or ['no message'])[-1]}")
    return trace.read_text(encoding="utf-8")


def decide(
    launches: tuple[Launch, ...],
    seconds: float,
    peak_fraction: float | None,
    limit_gbps: float | None,
) -> tuple[Bound, str]:
    """Return what bounds a call of ``seconds``, and why; no ``limit_gbps`` for matrix products."""
    fraction = peak_fraction or 0.0
    near = fraction >= NEAR
    if near and limit_gbps is None:
        return "matrix products", f"these alone take {fraction:.0%} of the call's time"
    if not launches:
        return "unknown", "the profiler saw no kernel"
    at_limit: tuple[Bound, str]
    at_limit = "memory", f"the limit alone takes {fraction:.0%} of the call's time"
    longest = max(launches, key=lambda each: each.seconds)
    busy = sum(each.seconds for each in launches)
    if longest.blocks is None:
        if near:
            return at_limit
        share = longest.seconds / busy if busy else 0.0
        return "operators", f"{longest.name} takes {share:.0%} of the time of all operators"
    if busy < BUSY * seconds:
        text = f"{len(launches)} launches are busy for {busy / seconds:.0%} of the call's time"
        return "launches", text
    if found := _uncoalesced(longest) or _memory(longest, limit_gbps) or _few(longest):
        return found
    if longest.issued is None:
        return at_limit if near else ("unknown", "the counters of the GPU were not read")
    text = f"the schedulers issue in {longest.issued:.0%} of their cycles"
    if longest.issued >= ISSUED:
        return "instructions", text
    if longest.stall and longest.stall_share is not None:
        text = f"warps spend {longest.stall_share:.0%} of their time {longest.stall}; {text}"
    return "latency", text


def _uncoalesced(launch: Launch) -> tuple[Bound, str] | None:
    loads = launch.loaded_bytes, launch.useful_loads, "loads"
    stores = launch.stored_bytes, launch.useful_stores, "stores"
    for touched, useful, what in (loads, stores):
        much = touched is not None and touched >= LOADED * (launch.dram_bytes or 0.0)
        if much and useful is not None and useful < USEFUL:
            text = f"{what} use {useful:.0%} of the sectors of 32 bytes that they touch"
            return "uncoalesced access", text
    return None


def _memory(launch: Launch, limit_gbps: float | None) -> tuple[Bound, str] | None:
    if not limit_gbps or launch.dram_gbps is None or launch.dram_gbps < NEAR * limit_gbps:
        return None
    share = launch.dram_gbps / limit_gbps
    return "memory", f"the memory moves {launch.dram_gbps:,.0f} GB/s, {share:.0%} of the limit's"


def _few(launch: Launch) -> tuple[Bound, str] | None:
    if launch.multiprocessors and launch.blocks and launch.blocks < launch.multiprocessors:
        text = f"{launch.blocks} blocks for {launch.multiprocessors} multiprocessors"
        return "too few warps", text
    if launch.occupancy is not None and launch.occupancy < FEW:
        text = f"a multiprocessor holds {launch.occupancy:.0%} of the warps that it could"
        if launch.possible_occupancy is not None:
            text += f"; registers and shared memory allow {launch.possible_occupancy:.0%}"
        return "too few warps", text
    return None
