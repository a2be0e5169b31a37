"""The comparison of two runs: rows that both timed, and rows that only one has. Needs no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean, median

import numpy as np

from losscli.axes import HOST, Cache, Mode, PassName
from losscli.compare.gate import NO_GATE, Gate
from losscli.compare.noise import (
    ENOUGH_CONTROLS,
    LEAST_NOISE,
    Array,
    Change,
    noise_between_runs,
    process_errors,
    ratios,
    uncertainties,
)
from losscli.compare.rows import Key, key, label, timed
from losscli.machine.differences import Difference, differences
from losscli.runs.records import (
    FAILED,
    FASTER,
    SAME,
    SLOWER,
    UNCLEAR,
    BenchResult,
    Judgement,
    Run,
    Seconds,
)

CONTROLS = ("reference", "functional", "compile")
"""PyTorch's own code: the same in two runs if torch is."""
TOLERATED = 0.05
"""How far from 1 a ratio may be that is called the same, unless another threshold is given."""

Group = tuple[Mode, Cache]
"""Mode and cache: rows that are called and timed alike, and so are as noisy."""


@dataclass(frozen=True)
class Row:
    """One implementation and pass of a case, timed in both runs."""

    before: BenchResult
    after: BenchResult
    ratio: Change
    verdict: Judgement
    control: bool
    """Whether it is the same code in both runs."""

    @property
    def name(self) -> str:
        """The name for people."""
        return label(self.after)


@dataclass(frozen=True)
class Missing:
    """A row that one run timed and the other did not."""

    result: BenchResult
    status: str
    """The status of the row in the other run; empty if that run did not have it."""
    reason: str

    @property
    def why(self) -> str:
        """The status and reason in the other run, if any."""
        return f"{self.status}: {self.reason}" if self.status else ""


@dataclass(frozen=True)
class Mean:
    """The geometric mean of the ratios of rows that only the case tells apart."""

    loss: str
    pass_: PassName
    mode: Mode
    cache: Cache
    implementation: str
    ratio: float
    rows: int


@dataclass(frozen=True)
class Noise:
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
    """The largest such distance."""
    why: str
    """Why the rows of PyTorch's own implementations do not tell it; empty where they do."""
    from_processes: bool = False
    """Whether, in their stead, the spread between processes tells it; else it is supposed."""


@dataclass(frozen=True)
class Comparison:
    """A run against a baseline."""

    before: Run
    after: Run
    rows: tuple[Row, ...]
    only_before: tuple[Missing, ...]
    """Rows that only the baseline timed."""
    only_after: tuple[Missing, ...]
    differences: tuple[Difference, ...]
    noises: tuple[Noise, ...]
    """Of each mode and cache."""
    same_torch: bool
    """Whether PyTorch's own implementations are the same code in both."""

    @property
    def noise(self) -> float:
        """Standard deviation between runs of a ratio, of the rows where it is largest."""
        return max((noise.value for noise in self.noises), default=0.0)

    @property
    def controls(self) -> int:
        """Rows that are the same code in both runs."""
        return sum(row.control for row in self.rows)

    @property
    def broken(self) -> list[Missing]:
        """What the baseline timed and the other run failed, but for controls."""
        return [
            missing
            for missing in self.only_before
            if missing.status == FAILED and not self._is_control(missing.result)
        ]

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

    def undecided(self, threshold: float) -> list[Row]:
        """Return the rows in which noise can hide a slowdown by the threshold.

        The interval contains 1, and it is too wide to show the threshold, or the measured ratio
        itself is beyond it.
        """
        limit = 1 + threshold
        return [
            row
            for row in self.rows
            if not row.control
            and row.verdict == UNCLEAR
            and (row.ratio.high > limit * row.ratio.value or row.ratio.value > limit)
        ]

    def blind(self, threshold: float) -> bool:
        """Tell whether no row can be judged as slower."""
        if self.broken:
            return False
        return len(self.undecided(threshold)) == len(self.rows) - self.controls

    def _is_control(self, result: BenchResult) -> bool:
        return self.same_torch and result.implementation in CONTROLS

    def means(self) -> list[Mean]:
        """Return the mean of each loss, pass, mode, cache and implementation."""
        found: dict[tuple[str, PassName, Mode, Cache, str], list[float]] = {}
        for row in self.rows:
            it = row.after
            alike = it.case.loss, it.pass_, it.mode, it.cache, it.implementation
            found.setdefault(alike, []).append(row.ratio.value)
        return [
            Mean(*alike, geometric_mean(ratios), len(ratios)) for alike, ratios in found.items()
        ]


@dataclass(frozen=True)
class Comparisons:
    """Runs against a baseline, under the names that the user gave them."""

    baseline: str
    comparisons: dict[str, Comparison]
    """By the name of the run that is compared."""
    gate: Gate = NO_GATE
    """What makes the comparison fail."""

    @property
    def threshold(self) -> float | None:
        """The slowdown beyond which a row fails the comparison, if there is a gate."""
        return self.gate.threshold

    def broken(self) -> list[tuple[str, Missing]]:
        """Return what the baseline timed and a run failed, each with the name of the run."""
        return [(name, each) for name, one in self.comparisons.items() for each in one.broken]

    def missing(self) -> list[tuple[str, Missing]]:
        """Return the rows whose absence fails the comparison, each with the name of the run."""
        return [
            (name, each)
            for name, one in self.comparisons.items()
            for each in one.only_before
            if self.gate.fails_on_missing(each.result.implementation)
        ]

    def cut_off(self) -> list[str]:
        """Return the names of the runs whose file ends in half a line, where the gate minds."""
        if not self.gate.minds_missing or not self.comparisons:
            return []
        before = next(iter(self.comparisons.values())).before
        runs = {self.baseline: before} | {n: one.after for n, one in self.comparisons.items()}
        return [name for name, run in runs.items() if run.cut_off]

    def undecided(self) -> list[tuple[str, Row]]:
        """Return the rows whose noise fails the comparison, each with the name of its run."""
        if self.threshold is None:
            return []
        return [
            (name, row)
            for name, one in self.comparisons.items()
            for row in one.undecided(self.threshold)
            if self.gate.fails_on_undecided(row.after.implementation)
        ]

    def blind(self) -> list[str]:
        """Return the names of the runs in which no row could be judged, where the gate minds."""
        if self.threshold is None or not self.gate.minds_undecided:
            return []
        return [name for name, one in self.comparisons.items() if one.blind(self.threshold)]

    @property
    def failed(self) -> bool:
        """Whether the gate is closed: something is slower, broken, missing or undecided."""
        slow = self.threshold is not None and (self.regressions() or self.broken())
        unseen = self.missing() or self.cut_off() or self.undecided() or self.blind()
        return bool(slow or unseen)

    def regressions(self) -> list[tuple[str, Row]]:
        """Return what is slower beyond threshold and noise, each with the name of its run."""
        if self.threshold is None:
            return []
        return [
            (name, row)
            for name, comparison in self.comparisons.items()
            for row in comparison.regressions(self.threshold)
        ]


def compare(before: Run, after: Run, tolerated: float = TOLERATED) -> Comparison:
    """Compare a run with a baseline; ``tolerated`` is the largest difference called the same."""
    befores, afters = timed(before), timed(after)
    keys = [name for name in befores if name in afters]
    pairs = [(befores[name], afters[name]) for name in keys]
    groups = [(one.mode, one.cache) for one, _ in pairs]
    host = any(mode == HOST for mode, _ in groups)
    unlike = tuple(differences(before.environment, after.environment, host=host))
    why = _no_controls(unlike)
    control = [not why and one.implementation in CONTROLS for one, _ in pairs]
    first, second = (np.array([_median(pair[i]) for pair in pairs]) for i in (0, 1))
    logs = np.log(second / first).tolist() if pairs else []
    drifts = _drifts(keys, logs, control)
    noise = _noises(groups, logs, drifts, control, _device(after))
    errors, between = _errors(pairs, groups)
    noise, from_processes = _without_supposed(groups, noise, control, between, _device(after))
    known = np.array([drift or 0.0 for drift in drifts])
    found = ratios(first, second, errors, known, np.array(noise))
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
        _told(groups, noise, logs, control, why, from_processes),
        not why,
    )


def _errors(
    pairs: Sequence[tuple[BenchResult, BenchResult]], groups: Sequence[Group]
) -> tuple[Array, Array]:
    """Return the standard error of the log of each ratio, as far as samples tell it.

    Where both runs measured in several processes, it is at least what the spread between these
    says, which is returned as well; for other rows that is not a number.
    """
    sides = [[pair[side].seconds for pair in pairs] for side in (0, 1)]
    within = [uncertainties([s.samples for s in side if s]) for side in sides]
    between = np.full(len(pairs), math.nan)
    for group in dict.fromkeys(groups):
        own = [index for index, other in enumerate(groups) if other == group]
        of_group = (process_errors([_process_medians(side[i]) for i in own]) for side in sides)
        between[own] = np.hypot(*of_group)
    return np.fmax(np.hypot(*within), between), between


def _process_medians(seconds: Seconds | None) -> list[float]:
    """Return the median of each process; of one process none."""
    if seconds is None or len(seconds.processes) < 2:
        return []
    return [median(samples) for samples in seconds.by_process]


def _without_supposed(
    groups: Sequence[Group],
    noises: Sequence[float],
    control: Sequence[bool],
    between: Array,
    device: str,
) -> tuple[list[float], dict[Group, float]]:
    """Replace noise that is supposed by the least there is, where the processes tell theirs.

    Returns the noise of each row, and by group what the processes typically tell, for the report.
    """
    found, told = list(noises), {}
    for group in dict.fromkeys(groups):
        own = [index for index, other in enumerate(groups) if other == group]
        if sum(control[index] for index in own) >= ENOUGH_CONTROLS:
            continue
        if np.isnan(between[own]).any():
            continue
        told[group] = float(np.median(between[own]))
        for index in own:
            found[index] = LEAST_NOISE["cpu" if group[0] == HOST else device]
    return found, told


def _drifts(
    keys: Sequence[Key], logs: Sequence[float], control: Sequence[bool]
) -> list[float | None]:
    """Return by how much the controls of each pair's case and pass are off, but for itself.

    They were timed side by side with it: what came upon the machine then came upon them too. None
    where there are none.
    """
    beside: dict[object, list[int]] = {}
    places = [key.beside for key in keys]
    for index, counts in enumerate(control):
        if counts:
            beside.setdefault(places[index], []).append(index)
    others = [[i for i in beside.get(place, ()) if i != own] for own, place in enumerate(places)]
    return [median(logs[i] for i in found) if found else None for found in others]


def _no_controls(unlike: Sequence[Difference]) -> str:
    """Return why PyTorch's own code is not the same in both runs, if it is not."""
    for difference in unlike:
        if difference.decisive or difference.fact in ("torch", "torch_cuda"):
            return f"because the runs have a different {difference}"
    return ""


def _noises(
    groups: Sequence[Group],
    logs: Sequence[float],
    drifts: Sequence[float | None],
    control: Sequence[bool],
    device: str,
) -> list[float]:
    """Return the noise between runs of each row: that of the controls of its mode and cache.

    What a GPU takes for a call tells nothing of what the host takes for it.
    """
    noises = [0.0] * len(logs)
    for group in dict.fromkeys(groups):
        own = [index for index, other in enumerate(groups) if other == group]
        found = _noises_of_group(
            [logs[index] for index in own],
            [drifts[index] for index in own],
            [control[index] for index in own],
            "cpu" if group[0] == HOST else device,
        )
        for index, noise in zip(own, found, strict=True):
            noises[index] = noise
    return noises


def _noises_of_group(
    logs: Sequence[float],
    drifts: Sequence[float | None],
    control: Sequence[bool],
    device: str,
) -> list[float]:
    """Return the noise of rows of one mode and cache.

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


def _told(
    groups: Sequence[Group],
    noises: Sequence[float],
    logs: Sequence[float],
    control: Sequence[bool],
    why: str,
    from_processes: Mapping[Group, float],
) -> tuple[Noise, ...]:
    """Return the noise of each mode and cache with what tells it."""
    found = []
    for group in dict.fromkeys(groups):
        own = [index for index, other in enumerate(groups) if other == group]
        controls = sum(control[index] for index in own)
        few = f"because there are too few controls: {controls} of {ENOUGH_CONTROLS}"
        missing = "" if controls >= ENOUGH_CONTROLS else why or few
        noise = max(noises[index] for index in own)
        if group in from_processes:
            noise = max(noise, from_processes[group])
        off = [abs(math.expm1(logs[index])) for index in own if control[index]]
        middle, most = (median(off), max(off)) if off else (0.0, 0.0)
        found.append(Noise(*group, noise, controls, middle, most, missing, group in from_processes))
    return tuple(found)


def _verdict(ratio: Change, tolerated: float) -> Judgement:
    if ratio.low > 1:
        return SLOWER
    if ratio.high < 1:
        return FASTER
    inside = ratio.low >= 1 / (1 + tolerated) and ratio.high <= 1 + tolerated
    return SAME if inside else UNCLEAR


def _missing(
    there: Mapping[Key, BenchResult], here: Mapping[Key, BenchResult], other: Run
) -> tuple[Missing, ...]:
    """Return the rows of one run that the other did not time, with their status there."""
    if not there.keys() - here.keys():
        return ()
    others = {key(r): (r.status, r.reason) for r in other.results if isinstance(r, BenchResult)}
    return tuple(
        Missing(result, *others.get(name, ("", "")))
        for name, result in there.items()
        if name not in here
    )


def _median(result: BenchResult) -> float:
    assert result.seconds
    return max(result.seconds.median, 1e-12)


def _device(run: Run) -> str:
    kind = str(run.environment.get("device", "cpu")).partition(":")[0]
    return kind if kind == "cuda" else "cpu"
