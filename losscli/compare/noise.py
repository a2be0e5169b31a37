"""How much the times of one run differ from those of another for no reason. Without torch.

The controls show it: implementations that are the same code in both runs, as PyTorch's own are
where torch is the same. Where they are too few, the spread between the processes of a run tells the
noise; where a run has one process, it is supposed.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist, median

import numpy as np

from losscli.cases.axes import HOST, Cache, Mode
from losscli.compare.change import Array, process_errors, uncertainties
from losscli.compare.rows import Key
from losscli.files.record import Record
from losscli.machine.differences import Difference
from losscli.runs.grouping import grouped
from losscli.runs.measurements import Seconds
from losscli.runs.records import BenchResult

ENOUGH_CONTROLS = 6
"""Fewest controls by which the noise between runs is known and not supposed."""
SUPPOSED_NOISE = {"cpu": 0.02, "cuda": 0.01}
"""Standard deviation from run to run of a log of a median, where there are too few controls."""
LEAST_NOISE = {"cpu": 0.01, "cuda": 0.005}
"""The least of it, where controls that agree by luck would make it less."""
CONTROLS = ("reference", "functional", "compile")
"""PyTorch's own code: the same in two runs if torch is."""
_MAD = 1 / NormalDist().inv_cdf(0.75)
"""Standard deviations in a median of absolute deviations."""

Group = tuple[Mode, Cache]
"""Mode and cache: rows that are called and timed alike, and so are as noisy."""


class Noise(Record, frozen=True):
    """How much the ratios of one mode and cache vary between runs, and what tells it."""

    mode: Mode
    cache: Cache
    value: float
    """Standard deviation, of the rows where it is largest."""
    controls: int
    """Number of control rows that measure the noise."""
    off: float
    """Median distance of the controls' ratios from 1, as a fraction; 0 without controls."""
    most_off: float
    why: str
    """Why the rows of PyTorch's own implementations do not tell it; empty where they do."""
    from_processes: bool = False
    """Whether, in their stead, the spread between processes tells it; else it is supposed."""


def noise_between_runs(control_logs: Sequence[float], device: str) -> float:
    """Return the standard deviation between runs that the logs of the controls' ratios tell.

    It is taken about 0, not about their mean: that a whole run is slower is noise as well. One
    control in two may be off for reasons of its own. ``device`` is ``cpu`` or ``cuda``.
    """
    if len(control_logs) < ENOUGH_CONTROLS:
        return SUPPOSED_NOISE[device]
    return max(LEAST_NOISE[device], _MAD * float(np.median(np.abs(control_logs))))


def control_drifts(
    keys: Sequence[Key], logs: Sequence[float], control: Sequence[bool]
) -> list[float | None]:
    """Return how far the other controls beside each pair are off; None where there are none."""
    groups = [key.beside for key in keys]
    beside = grouped((i for i, counts in enumerate(control) if counts), groups.__getitem__)
    others = [[i for i in beside.get(group, ()) if i != own] for own, group in enumerate(groups)]
    return [median(logs[i] for i in found) if found else None for found in others]


def standard_errors(
    pairs: Sequence[tuple[BenchResult, BenchResult]], groups: Sequence[Group]
) -> tuple[Array, Array]:
    """Return the standard error of the log of each ratio, as far as samples tell it.

    It is at least what the spread between processes says, which is returned as well, or NaN.
    """
    sides = [[pair[side].seconds for pair in pairs] for side in (0, 1)]
    within = [uncertainties([s.samples for s in side if s]) for side in sides]
    between = np.full(len(pairs), math.nan)
    for own in _of_groups(groups).values():
        of_group = (process_errors([_process_medians(side[i]) for i in own]) for side in sides)
        between[own] = np.hypot(*of_group)
    return np.fmax(np.hypot(*within), between), between


def no_controls(unlike: Sequence[Difference]) -> str:
    """Return why PyTorch's own code is not the same in both runs, if it is not."""
    for difference in unlike:
        if difference.decisive or difference.fact in ("torch", "torch_cuda"):
            return f"because the runs have a different {difference}"
    return ""


def noise_of_rows(
    groups: Sequence[Group],
    logs: Sequence[float],
    drifts: Sequence[float | None],
    control: Sequence[bool],
    between: Array,
    device: str,
    why: str,
) -> tuple[list[float], tuple[Noise, ...]]:
    """Return the noise between runs of each row, and that of each mode and cache.

    A row has the noise of the controls of its mode and cache. Where they are too few, the processes
    tell theirs, if there were several, and what is left is the least there is.

    ``drifts`` says by how much the controls beside each row are off, ``between`` which standard
    error the spread between its processes tells, and ``why`` why no row is a control, if none is.
    """
    noises, found = [0.0] * len(logs), []
    for group, own in _of_groups(groups).items():
        controls = sum(control[index] for index in own)
        enough = controls >= ENOUGH_CONTROLS
        # What the host takes for a call arises in the CPU.
        place = "cpu" if group[0] == HOST else device
        from_processes = not enough and not np.isnan(between[own]).any()
        if from_processes:
            of_own = dict.fromkeys(own, LEAST_NOISE[place])
            value = max(LEAST_NOISE[place], float(np.median(between[own])))
        else:
            of_own = _noises(own, logs, drifts, control, place)
            value = max(of_own.values())
        for index, noise in of_own.items():
            noises[index] = noise
        noises_of_own = [abs(math.expm1(logs[index])) for index in own if control[index]]
        off = noises_of_own or [0.0]
        few = f"because there are too few controls: {controls} of {ENOUGH_CONTROLS}"
        missing = "" if enough else why or few
        found.append(Noise(*group, value, controls, median(off), max(off), missing, from_processes))
    return noises, tuple(found)


def _of_groups(groups: Sequence[Group]) -> dict[Group, list[int]]:
    return grouped(range(len(groups)), groups.__getitem__)


def _noises(
    own: Sequence[int],
    logs: Sequence[float],
    drifts: Sequence[float | None],
    control: Sequence[bool],
    device: str,
) -> dict[int, float]:
    """Return the noise of the rows of one mode and cache, whose indices are ``own``.

    Of a row beside controls of its own case, it is that of a control beside the others of its case,
    if this is less: the interval reaches to the ratio as measured and to the one beside controls.
    """
    controls = [index for index in own if control[index]]
    beside = [logs[i] - drift for i in controls if (drift := drifts[i]) is not None]
    anywhere = noise_between_runs([logs[i] for i in controls], device)
    if len(beside) < ENOUGH_CONTROLS:
        return dict.fromkeys(own, anywhere)
    accompanied = min(noise_between_runs(beside, device), anywhere)
    return {index: anywhere if drifts[index] is None else accompanied for index in own}


def _process_medians(seconds: Seconds | None) -> list[float]:
    """Return the median of each process; of one process none."""
    if seconds is None or len(seconds.processes) < 2:
        return []
    return [median(samples) for samples in seconds.by_process]
