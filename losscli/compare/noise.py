"""How much the times of two runs differ for no reason. Without torch.

Controls show it: implementations that are the same code in both runs, as PyTorch's own are where
torch is the same. With too few controls, the spread between a run's processes tells the noise; with
one process, it is assumed.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist, median

import numpy as np
from numpy.typing import NDArray

from losscli.cases.axes import HOST, Cache, Mode
from losscli.compare.change import Array, process_errors, uncertainties
from losscli.compare.row_keys import RowKey
from losscli.files.record import Record
from losscli.machine.differences import Difference
from losscli.runs.grouping import grouped
from losscli.runs.measurements import Seconds
from losscli.runs.records import BenchResult

ENOUGH_CONTROLS = 6
"""Fewest controls from which the noise between runs is measured."""
SUPPOSED_NOISE = {"cpu": 0.02, "cuda": 0.01}
"""Assumed standard deviation between runs of a median's log."""
LEAST_NOISE = {"cpu": 0.01, "cuda": 0.005}
"""Its lower bound, since controls may agree by luck."""
CONTROLS = ("reference", "functional", "compile")
"""PyTorch's own code: the same in two runs with the same torch."""
_MAD = 1 / NormalDist().inv_cdf(0.75)
"""Standard deviation over the median absolute deviation."""

Flags = NDArray[np.bool_]
Group = tuple[Mode, Cache]
"""Mode and cache: rows with the same noise."""


class Noise(Record, frozen=True):
    """How much ratios of one mode and cache vary between runs, and how that is known."""

    mode: Mode
    cache: Cache
    value: float
    """The largest standard deviation."""
    controls: int
    """Number of controls."""
    off: float
    """Median distance of the controls' ratios from 1; 0 without controls."""
    most_off: float
    why: str
    """Why the controls do not measure it; empty where they do."""
    from_processes: bool = False
    """Whether the spread between processes measures it; else it is assumed."""


def noise_between_runs(control_logs: Sequence[float] | Array, device: str) -> float:
    """Return the standard deviation between runs, from the logs of the controls' ratios.

    It is about 0, not their mean: a slowdown of a whole run is noise too. Every other control may
    be off for other reasons. ``device`` is ``cpu`` or ``cuda``.
    """
    if len(control_logs) < ENOUGH_CONTROLS:
        return SUPPOSED_NOISE[device]
    return max(LEAST_NOISE[device], _MAD * float(np.median(np.abs(control_logs))))


def control_drifts(keys: Sequence[RowKey], logs: Array, control: Flags) -> Array:
    """Return how far off the other controls of each pair's cell are; NaN without any."""
    groups = [key.beside for key in keys]
    beside = grouped(np.flatnonzero(control).tolist(), groups.__getitem__)
    others = [[i for i in beside.get(group, ()) if i != own] for own, group in enumerate(groups)]
    return np.array([median(logs[i] for i in found) if found else math.nan for found in others])


def standard_errors(pairs: Sequence[tuple[BenchResult, BenchResult]]) -> tuple[Array, Array]:
    """Return the standard error of each log ratio, and its part between processes or NaN."""
    sides = [[pair[side].seconds for pair in pairs] for side in (0, 1)]
    within = np.hypot(*(uncertainties([s.samples for s in side if s]) for side in sides))
    between = np.hypot(*(process_errors(list(map(_process_medians, side))) for side in sides))
    return np.fmax(within, between), between


def no_controls(unlike: Sequence[Difference]) -> str:
    """Return why PyTorch's code differs between the runs, if it does."""
    for difference in unlike:
        if difference.decisive or difference.fact in ("torch", "torch_cuda"):
            return f"because the runs have a different {difference}"
    return ""


def noise_of_rows(
    group: Group,
    logs: Array,
    drifts: Array,
    control: Flags,
    between: Array,
    device: str,
    why: str,
) -> tuple[Array, Noise]:
    """Return the noise between runs of each row of a mode and cache, and its summary.

    It is the controls' noise. With too few controls it is the least noise, on top of the spread
    between processes, if there were several.

    ``drifts``: how far off the controls of each row's cell are. ``between``: standard errors from
    the spread between processes. ``why``: why no row is a control, if none is.
    """
    controls = int(control.sum())
    enough = controls >= ENOUGH_CONTROLS
    # The host's time of a call depends on the CPU.
    place = "cpu" if group[0] == HOST else device
    from_processes = not enough and not np.isnan(between).any()
    if from_processes:
        noises = np.full(len(logs), LEAST_NOISE[place])
        value = max(LEAST_NOISE[place], float(np.median(between)))
    else:
        noises = _noises(logs, drifts, control, place)
        value = float(noises.max())
    off = [abs(math.expm1(log)) for log in logs[control]] or [0.0]
    needed = f"{controls} of the {ENOUGH_CONTROLS} rows needed"
    few = f"because PyTorch's own implementations have {needed}"
    missing = "" if enough else why or few
    told = Noise(*group, value, controls, median(off), max(off), missing, from_processes)
    return noises, told


def _noises(logs: Array, drifts: Array, control: Flags, device: str) -> Array:
    """Return each row's noise from the controls.

    A row with controls in its cell has the noise of a control relative to the others of its cell,
    if that is less: its interval covers the ratio as measured and relative to the controls.
    """
    anywhere = noise_between_runs(logs[control], device)
    beside = (logs - drifts)[control & ~np.isnan(drifts)]
    if len(beside) < ENOUGH_CONTROLS:
        return np.full(len(logs), anywhere)
    accompanied = min(noise_between_runs(beside, device), anywhere)
    return np.where(np.isnan(drifts), anywhere, accompanied)


def _process_medians(seconds: Seconds | None) -> list[float]:
    if seconds is None or len(seconds.processes) < 2:
        return []
    return [median(samples) for samples in seconds.by_process]
