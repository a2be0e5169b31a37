"""Read kernel counters with Nsight Compute, ``ncu``."""

import csv
import io
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from losscli.errors import UnfitError
from losscli.profile.record import Launch
from losscli.units import finite

PROGRAM = "ncu"
OPTIONS = ("--profile-from-start", "off", "--clock-control", "none", "--cache-control", "all")
"""Only marked calls, at the machine's clocks, each launch with empty caches."""
MISSING = (
    "Nsight Compute (ncu) is not installed: without it there are no counters of the memory, of "
    "warps and of what they wait for. It is part of the CUDA toolkit"
)
PERMISSION_ADVICE = (
    "only administrators may read the GPU's counters here: run as root, or load the driver with "
    "NVreg_RestrictProfilingToAdminUsers=0"
)
SECTOR_BYTES = 32
_STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
STALLS = {
    "long_scoreboard": "waiting for memory",
    "short_scoreboard": "waiting for shared memory",
    "barrier": "at a barrier of their block",
    "wait": "waiting for the previous instruction",
    "math_pipe_throttle": "waiting for a busy arithmetic unit",
    "lg_throttle": "waiting for the memory queue",
    "mio_throttle": "waiting for the shared memory queue",
    "tex_throttle": "waiting for the texture queue",
    "no_instruction": "waiting for an instruction fetch",
    "not_selected": "ready, but another warp was selected",
    "membar": "waiting at a memory barrier",
    "drain": "waiting for their last writes",
    "sleeping": "asleep",
    "branch_resolving": "waiting for a branch",
    "dispatch_stall": "waiting for the dispatcher",
    "imc_miss": "waiting for a constant cache miss",
    "selected": "issuing instructions",
}
"""What warps do in a cycle, by Nsight Compute's names."""
_SECONDS = "gpu__time_duration.sum"
_READ, _WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"
_L2 = "lts__t_bytes.sum"
_FIELDS = {
    "registers": "launch__registers_per_thread",
    "blocks": "launch__grid_size",
    "threads": "launch__block_size",
    "occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "possible_occupancy": "sm__maximum_warps_per_active_cycle_pct",
    "issued": "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "multiprocessors": "device__attribute_multiprocessor_count",
}
"""Fields of a launch that are a whole number, or a share if ncu gives percent."""
_SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_{}.sum"
_USEFUL = "smsp__sass_average_data_bytes_per_sector_mem_global_op_{}.pct"
METRICS = (
    *(_SECONDS, _READ, _WRITTEN, _L2, *_FIELDS.values()),
    *(name.format(kind) for name in (_SECTORS, _USEFUL) for kind in ("ld", "st")),
    *map(_STALL.format, STALLS),
)


class NoCountersError(UnfitError):
    """The GPU's counters cannot be read; the message says why, and what to do."""


def command(raw: Path, bare: Sequence[str]) -> tuple[str, ...]:
    """Return the command that profiles another one into ``raw``, or raise NoCountersError."""
    if not (program := shutil.which(PROGRAM)):
        raise NoCountersError(MISSING)
    return (program, *OPTIONS, "--metrics", ",".join(METRICS), "-f", "-o", str(raw), *bare)


def run(command: Sequence[str], report: Path) -> tuple[Launch, ...]:
    """Run a command of ``command``; return the marked launches, or raise NoCountersError."""
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    said = ended.stdout + ended.stderr
    if "ERR_NVGPUCTRPERM" in said:
        raise NoCountersError(PERMISSION_ADVICE)
    if ended.returncode or not report.exists():
        errors = [line for line in said.splitlines() if "rror" in line] or said.splitlines()[-1:]
        raise NoCountersError(f"{PROGRAM} made no report: {(errors or ['it said nothing'])[-1]}")
    options = ("--csv", "--page", "raw", "--print-units", "base")
    imported = (command[0], "--import", str(report), *options)
    printed = subprocess.run(imported, capture_output=True, text=True, check=False)
    if printed.returncode:
        raise NoCountersError(f"{PROGRAM} cannot read its report: {printed.stderr.strip()[-200:]}")
    return read(printed.stdout)


def read(text: str) -> tuple[Launch, ...]:
    """Return the launches of ncu's output for ``--csv --page raw``."""
    table = text[text.index('"ID"') :] if '"ID"' in text else ""
    rows = list(csv.DictReader(io.StringIO(table)))
    return tuple(map(_launch, rows[1:]))  # the first row has the units


def _launch(row: Mapping[str, str]) -> Launch:
    def number(metric: str) -> float | None:
        found = finite(row.get(metric, "").replace(",", ""))
        return found / 100 if found is not None and "pct" in metric else found

    fields: dict[str, Any] = {
        field: found if (found := number(metric)) is None or "pct" in metric else int(found)
        for field, metric in _FIELDS.items()
    }
    stalls = {name: number(_STALL.format(name)) or 0.0 for name in STALLS}
    cycles = sum(stalls.values())
    del stalls["selected"]
    stall = max(stalls, key=lambda name: stalls[name])
    moved = [number(_READ), number(_WRITTEN)]
    touched = {kind: (number(_SECTORS.format(kind)) or 0.0) * SECTOR_BYTES for kind in ("ld", "st")}
    return Launch(
        name=row["Kernel Name"],
        seconds=(number(_SECONDS) or 0.0) * 1e-9,  # ncu's base unit
        dram_bytes=None if None in moved else sum(filter(None, moved)),
        l2_bytes=number(_L2),
        loaded_bytes=touched["ld"],
        useful_loads=number(_USEFUL.format("ld")) if touched["ld"] else None,
        stored_bytes=touched["st"],
        useful_stores=number(_USEFUL.format("st")) if touched["st"] else None,
        stall=STALLS[stall] if cycles else "",
        stall_share=stalls[stall] / cycles if cycles else None,
        **fields,
    )
