"""How much longer one run took than another, within noise, as docs/comparing.md describes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, median, stdev

import numpy as np
from numpy.typing import NDArray

from losscli.cases.axes import HOST, Cache, Mode
from losscli.compare.row_keys import RowKey
from losscli.files.record import Record
from losscli.machine.differences import Difference
from losscli.runs.grouping import grouped
from losscli.runs.measurements import Z95, Seconds
from losscli.runs.records import BenchResult

CONFIDENCE = 0.99
"""The confidence that all intervals of a comparison hold at once."""
CONTROLS = ("reference", "functional", "compile")
"""PyTorch's own code: the same in two runs with the same torch."""
ENOUGH_CONTROLS = 6
"""Fewest controls from which the noise between runs is measured."""
SUPPOSED_NOISE = {"cpu": 0.02, "cuda": 0.01}
"""Assumed standard deviation between runs of a median's log."""
LEAST_NOISE = {"cpu": 0.01, "cuda": 0.005}
"""Its lower bound, since controls may agree by luck."""
_MAD = 1 / NormalDist().inv_cdf(0.75)
"""Standard deviation over the median absolute deviation."""
_BATCHES = 8
"""Successive parts of a run, whose medians show a drift."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Change:
    """A ratio of two times, and the interval that noise leaves."""

    value: float
    low: float
    high: float


def uncertainties(samples: Sequence[Sequence[float]]) -> Array:
    """Return the error of each median's log, by spread or drift; infinite for few samples."""
    errors = np.full(len(samples), math.inf)
    for count, chosen in grouped(range(len(samples)), lambda index: len(samples[index])).items():
        if count >= 3:  # from which a spread can be estimated
            logs = np.log(np.array([samples[index] for index in chosen], dtype=np.float64))
            errors[chosen] = np.maximum(_error_by_order(logs), _error_by_parts(logs))
    return errors


def _process_errors(timed: Sequence[Seconds | None]) -> Array:
    """Return the errors between processes, at least the typical one: few may agree by luck."""
    errors = np.full(len(timed), math.nan)
    typical: list[float] = []
    for index, each in enumerate(timed):
        if each and len(each.processes) > 1:
            logs = [math.log(median(samples)) for samples in each.by_process]
            errors[index] = stdev(logs) / math.sqrt(len(logs))
            # The median of a variance of so few is below the variance itself.
            typical.append(errors[index] / (1 - 2 / (9 * (len(logs) - 1))) ** 1.5)
    return np.maximum(errors, np.median(typical)) if typical else errors


def ratios(
    before: Array, after: Array, errors: Array, drifts: Array, noise: Array, times: int = 1
) -> list[Change]:
    """Return each ratio of medians, in an interval that holds relative to the controls too.

    ``errors`` and ``noise``: standard errors of the logs by samples, and between runs. ``drifts``:
    logs of the controls' ratios, or 0. ``times``: how many such comparisons have to hold at once.
    """
    logs = np.log(after / before)
    half = joint_z(len(logs) * times) * np.hypot(errors, noise)
    low = np.exp(np.minimum(logs, logs - drifts) - half)
    high = np.exp(np.maximum(logs, logs - drifts) + half)
    values = (array.tolist() for array in (np.exp(logs), low, high))
    return [Change(*each) for each in zip(*values, strict=True)]


def joint_z(count: int) -> float:
    """Return the standard deviations for which ``count`` intervals hold at once (Bonferroni)."""
    return NormalDist().inv_cdf(1 - (1 - CONFIDENCE) / 2 / max(count, 1))


def _error_by_order(logs: Array) -> Array:
    """Return the standard error by order statistics, or the range of few samples."""
    ordered = np.sort(logs, axis=1)
    count = logs.shape[1]
    if count < 6:  # of which no two enclose the median with 95 %
        return np.asarray(ordered[:, -1] - ordered[:, 0])
    middle, half = (count - 1) / 2, Z95 * math.sqrt(count) / 2
    low, high = max(math.floor(middle - half), 0), min(math.ceil(middle + half), count - 1)
    return np.asarray((ordered[:, high] - ordered[:, low]) / 2 / Z95)


def _error_by_parts(logs: Array) -> Array:
    count = logs.shape[1]
    if count < 3 * _BATCHES:
        return np.zeros(len(logs))
    size = count // _BATCHES
    parts = logs[:, : size * _BATCHES].reshape(len(logs), _BATCHES, size)
    return np.asarray(np.std(np.median(parts, axis=2), axis=1, ddof=1) / math.sqrt(_BATCHES))


class Noise(Record, frozen=True):
    """How much ratios of one mode and cache vary between runs, and how that is known."""

    mode: Mode
    cache: Cache
    value: float
    """The largest standard deviation."""
    controls: int
    off: float
    """Median distance of the controls' ratios from 1; 0 without controls."""
    most_off: float
    why: str
    """Why the controls do not measure it; empty where they do."""
    from_processes: bool = False
    """Whether the spread between processes measures it; else it is assumed."""


def noise_between_runs(control_logs: Sequence[float] | Array, device: str) -> float:
    """Return the controls' deviation from 0, not their mean: a slower whole run is noise too."""
    if len(control_logs) < ENOUGH_CONTROLS:
        return SUPPOSED_NOISE[device]
    # The median, since every other control may be off for other reasons.
    return max(LEAST_NOISE[device], _MAD * float(np.median(np.abs(control_logs))))


def no_controls(unlike: Sequence[Difference]) -> str:
    """Return why PyTorch's code differs between the runs, if it does."""
    for difference in unlike:
        if difference.decisive or difference.fact in ("torch", "torch_cuda"):
            return f"because the runs have a different {difference}"
    return ""


def noise_of_rows(
    group: tuple[Mode, Cache],
    rows: Sequence[tuple[RowKey, BenchResult, BenchResult]],
    logs: Array,
    control: NDArray[np.bool_],
    device: str,
    why: str,
) -> tuple[Array, Array, Array, Noise]:
    """Return errors, drifts and noise of the rows of a mode and cache, and the noise's summary.

    A drift is how far off the other controls timed with a row are, or NaN. ``why``: why no row is a
    control, if none is.
    """
    sides = [before.seconds for _, before, _ in rows], [after.seconds for *_, after in rows]
    within = np.hypot(*(uncertainties([s.samples for s in side if s]) for side in sides))
    between = np.hypot(*map(_process_errors, sides))
    cells = [key.beside for key, *_ in rows]
    beside = grouped(np.flatnonzero(control).tolist(), cells.__getitem__)
    others = [[i for i in beside.get(cell, ()) if i != own] for own, cell in enumerate(cells)]
    drifts = np.array([median(logs[i] for i in found) if found else math.nan for found in others])
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
    missing = "" if enough else why or f"because PyTorch's own implementations have {needed}"
    told = Noise(*group, value, controls, median(off), max(off), missing, from_processes)
    return np.fmax(within, between), drifts, noises, told


def _noises(logs: Array, drifts: Array, control: NDArray[np.bool_], device: str) -> Array:
    """Return each row's noise from the controls.

    A row timed with controls has the noise of a control relative to the others timed with it, if
    that is less: its interval covers the ratio as measured and relative to the controls.
    """
    anywhere = noise_between_runs(logs[control], device)
    beside = (logs - drifts)[control & ~np.isnan(drifts)]
    if len(beside) < ENOUGH_CONTROLS:
        return np.full(len(logs), anywhere)
    accompanied = min(noise_between_runs(beside, device), anywhere)
    return np.where(np.isnan(drifts), anywhere, accompanied)
