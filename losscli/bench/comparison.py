"""Two runs side by side: each case that both timed, and those that only one has. Without torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean, median

import numpy as np

from losscli.bench.ratio import (
    ENOUGH_CONTROLS,
    Array,
    Ratio,
    noise_between_runs,
    ratios,
    uncertainties,
)
from losscli.cases import Case
from losscli.config.schema import DEVICE
from losscli.differences import Difference, differences
from losscli.results import BenchResult, Run

FASTER, SLOWER, SAME, UNCLEAR = "faster", "slower", "same", "unclear"
CONTROLS = ("reference", "functional", "compile")
"""PyTorch's own code: the same in two runs if torch is."""
TOLERATED = 0.05
"""How far from 1 a ratio may be that is called the same, unless another threshold is given."""

Key = tuple[object, ...]
"""Table, case, pass, mode, cache and implementation."""


@dataclass(frozen=True)
class Row:
    """One implementation and pass of a case, timed in both runs."""

    before: BenchResult
    after: BenchResult
    ratio: Ratio
    verdict: str
    control: bool
    """Whether it is the same code in both runs."""

    @property
    def name(self) -> str:
        """What a person would call it."""
        return label(self.after)


@dataclass(frozen=True)
class Comparison:
    """A run against a baseline."""

    before: Run
    after: Run
    rows: tuple[Row, ...]
    only_before: tuple[tuple[BenchResult, str], ...]
    """What only the baseline timed, and what the other run says of it instead."""
    only_after: tuple[tuple[BenchResult, str], ...]
    differences: tuple[Difference, ...]
    noise: float
    """Standard deviation between runs of a ratio, of the rows where it is largest."""
    controls: int
    """Rows that the noise is known from."""

    @property
    def comparable(self) -> bool:
        """Whether the times of the machines say anything about each other."""
        return not any(difference.decisive for difference in self.differences)

    def regressions(self, threshold: float) -> list[Row]:
        """Return the rows that are slower beyond both the threshold and the noise.

        A control is not among them: what slows the same code down is not the code.
        """
        return [
            row
            for row in self.rows
            if not row.control and row.ratio.value > 1 + threshold and row.ratio.low > 1
        ]

    def means(self) -> list[tuple[str, str, str, float, int]]:
        """Return loss, pass, implementation, geometric mean of the ratios and their number."""
        found: dict[tuple[str, str, str], list[float]] = {}
        for row in self.rows:
            key = row.after.case.loss, row.after.pass_, row.after.implementation
            found.setdefault(key, []).append(row.ratio.value)
        return [(*key, geometric_mean(values), len(values)) for key, values in found.items()]


def compare(before: Run, after: Run, tolerated: float = TOLERATED) -> Comparison:
    """Set a run beside a baseline; ``tolerated`` is how far apart what is the same may be."""
    befores, afters = _timed(before), _timed(after)
    keys = [key for key in befores if key in afters]
    pairs = [(befores[key], afters[key]) for key in keys]
    unlike = tuple(differences(before.environment, after.environment))
    same_torch = not any(d.decisive or d.fact in ("torch", "torch_cuda") for d in unlike)
    control = [same_torch and one.implementation in CONTROLS for one, _ in pairs]
    first, second = (np.array([_median(pair[i]) for pair in pairs]) for i in (0, 1))
    logs = np.log(second / first).tolist() if pairs else []
    drifts = _drifts(keys, logs, control)
    noise = _noises(logs, drifts, control, _device(after))
    known = np.array([drift or 0.0 for drift in drifts])
    found = ratios(first, second, _errors(pairs), known, np.array(noise))
    rows = [
        Row(*pair, ratio, _verdict(ratio, tolerated), counts)
        for pair, ratio, counts in zip(pairs, found, control, strict=True)
    ]
    return Comparison(
        before,
        after,
        tuple(rows),
        _missing(befores, afters, after),
        _missing(afters, befores, before),
        unlike,
        max(noise, default=0.0),
        sum(control),
    )


def label(result: BenchResult) -> str:
    """Return ``mse 1Kx1K float32 mean, custom, forward`` and the table, where there are several."""
    words = f"{result.case.name}, {result.implementation}, {result.pass_.replace('_', '+')}"
    if result.mode != DEVICE:
        words += f", {result.mode}"
    return f"{words} ({result.table})" if result.table else words


def _errors(pairs: Sequence[tuple[BenchResult, BenchResult]]) -> Array:
    """Return the standard error of the log of each ratio, as far as samples tell it."""
    before = uncertainties([one.seconds.samples for one, _ in pairs if one.seconds])
    after = uncertainties([other.seconds.samples for _, other in pairs if other.seconds])
    return np.hypot(before, after)


def _drifts(
    keys: Sequence[Key], logs: Sequence[float], control: Sequence[bool]
) -> list[float | None]:
    """Return by how much the controls of each pair's case and pass are off, but for itself.

    They were timed side by side with it: what came upon the machine then came upon them too. None
    where there are none.
    """
    beside: dict[Key, list[int]] = {}
    places = [key[:-1] for key in keys]
    for index, counts in enumerate(control):
        if counts:
            beside.setdefault(places[index], []).append(index)
    others = [[i for i in beside.get(place, ()) if i != own] for own, place in enumerate(places)]
    return [median(logs[i] for i in found) if found else None for found in others]


def _noises(
    logs: Sequence[float],
    drifts: Sequence[float | None],
    control: Sequence[bool],
    device: str,
) -> list[float]:
    """Return the noise between runs of each row: that of the controls.

    Of a row beside controls of its own case, it is that of a control beside the others of its case,
    if this is less: what they all share is left out there. As the interval reaches to both the
    ratio as measured and the one beside the controls, it is enough that one of them is as noisy.
    """
    alone = [log for log, counts in zip(logs, control, strict=True) if counts]
    beside = [
        log - drift
        for log, drift, counts in zip(logs, drifts, control, strict=True)
        if counts and drift is not None
    ]
    anywhere = noise_between_runs(alone, device)
    if len(beside) < ENOUGH_CONTROLS:
        return [anywhere] * len(logs)
    accompanied = min(noise_between_runs(beside, device), anywhere)
    return [anywhere if drift is None else accompanied for drift in drifts]


def _verdict(ratio: Ratio, tolerated: float) -> str:
    if ratio.low > 1:
        return SLOWER
    if ratio.high < 1:
        return FASTER
    inside = ratio.low >= 1 / (1 + tolerated) and ratio.high <= 1 + tolerated
    return SAME if inside else UNCLEAR


def _missing(
    there: Mapping[Key, BenchResult], here: Mapping[Key, BenchResult], other: Run
) -> tuple[tuple[BenchResult, str], ...]:
    """Return what is there and not here, with what the other run has of it but a time."""
    untimed = {_key(r): r for r in other.results if isinstance(r, BenchResult) and not r.seconds}
    return tuple(
        (result, f"{untimed[key].status}: {untimed[key].reason}" if key in untimed else "")
        for key, result in there.items()
        if key not in here
    )


def _timed(run: Run) -> dict[Key, BenchResult]:
    return {_key(r): r for r in run.results if isinstance(r, BenchResult) and r.seconds}


def _median(result: BenchResult) -> float:
    assert result.seconds
    return max(result.seconds.median, 1e-12)


def _key(result: BenchResult) -> Key:
    """Return what a row is known by: of two GPUs of one kind either will do."""
    how = result.pass_, result.mode, result.cache
    return result.table, _inputs(result.case), *how, result.implementation


def _inputs(case: Case) -> tuple[object, ...]:
    device, parameters = case.device.partition(":")[0], tuple(case.params.values())
    data = case.distribution, case.seed, case.scale
    sizes = case.shape, case.target_shape
    return case.loss, parameters, *sizes, case.dtype, case.reduction, device, *data


def _device(run: Run) -> str:
    kind = str(run.environment.get("device", "cpu")).partition(":")[0]
    return kind if kind == "cuda" else "cpu"
