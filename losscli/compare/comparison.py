"""Compare two runs: rows that both timed, and rows of one alone. Needs no torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import geometric_mean

import numpy as np

from losscli.cases.axes import HOST, Cache, Mode, PassName
from losscli.compare.metrics import ENERGY, METRICS
from losscli.compare.noise import CONTROLS, Change, Noise, no_controls, noise_of_rows, ratios
from losscli.compare.row_keys import RowKey, key, median_of, named, timed
from losscli.files.record import Record
from losscli.machine.differences import Difference, differences
from losscli.runs.grouping import grouped
from losscli.runs.judgements import FASTER, SAME, SLOWER, UNCLEAR, Judgement
from losscli.runs.records import FAILED, BenchResult, Run

TOLERATED = 0.05
"""Largest difference of two times that is called the same, by default."""


@dataclass(frozen=True)
class Row:
    """An implementation and pass of a case, timed in both runs."""

    before: BenchResult
    after: BenchResult
    ratio: Change
    verdict: Judgement
    control: bool
    """Whether both runs have the same code."""
    disturbed: bool
    """Whether other programs used the machine while the new run timed it."""

    def is_slower(self, threshold: float) -> bool:
        """Tell whether it is slower beyond threshold and noise; a control never is."""
        slower = self.ratio.value > 1 + threshold and self.ratio.low > 1
        return slower and not self.control and not self.disturbed

    def is_undecided(self, threshold: float) -> bool:
        """Tell whether noise can hide a slowdown by the threshold, or the ratio is beyond it."""
        if self.control or self.disturbed or self.verdict != UNCLEAR:
            return False
        limit, ratio = 1 + threshold, self.ratio
        return ratio.high > limit * ratio.value or ratio.value > limit

    def both(self, metric: str) -> tuple[float, float] | None:
        """Return a metric before and after, if both runs have it."""
        before, after = map(METRICS[metric].of, (self.before, self.after))
        return None if before is None or after is None else (before, after)

    def has_grown(self, metric: str, limit: float) -> bool:
        """Tell whether a metric has grown beyond a limit and noise; a control's never has."""
        both = self.both(metric)
        # The energy is that of the whole device.
        if both is None or self.control or (self.disturbed and metric == ENERGY):
            return False
        return METRICS[metric].grown(*both, self.ratio, limit)


class Untimed(Record, frozen=True, kw_only=True):
    """A row that only one of the runs timed."""

    case: str
    pass_: str
    mode: str = ""
    cache: str = ""
    implementation: str
    table: str = ""
    status: str = ""
    """The row's status in the other run; empty if it was not there."""
    reason: str = ""


class Mean(Record, frozen=True):
    """The geometric mean of the ratios of rows that differ only in the case."""

    loss: str
    pass_: PassName
    mode: Mode
    cache: Cache
    implementation: str
    ratio: float
    rows: int


@dataclass(frozen=True)
class Comparison:
    """A run against a baseline."""

    before: Run
    after: Run
    rows: tuple[Row, ...]
    only_before: tuple[Untimed, ...]
    only_after: tuple[Untimed, ...]
    differences: tuple[Difference, ...]
    noises: tuple[Noise, ...]

    @property
    def controls(self) -> int:
        """The number of rows that are the same code in both runs."""
        return sum(row.control for row in self.rows)

    @property
    def broken(self) -> list[Untimed]:
        """Rows that the baseline timed and the other run failed, without controls."""
        controls = () if no_controls(self.differences) else CONTROLS
        failed = (each for each in self.only_before if each.status == FAILED)
        return [each for each in failed if each.implementation not in controls]

    @property
    def comparable(self) -> bool:
        """Whether the machines' times can be compared."""
        return not any(difference.decisive for difference in self.differences)

    def regressions(self, threshold: float) -> list[Row]:
        """Return the rows that are slower beyond threshold and noise."""
        return [row for row in self.rows if row.is_slower(threshold)]

    def undecided(self, threshold: float) -> list[Row]:
        """Return the rows in which noise can hide a slowdown by the threshold."""
        return [row for row in self.rows if row.is_undecided(threshold)]

    def blind(self, threshold: float) -> bool:
        """Tell whether no row can be judged as slower."""
        judged = len(self.rows) - self.controls
        return not self.broken and len(self.undecided(threshold)) == judged

    def means(self) -> list[Mean]:
        """Return the mean of each loss, pass, mode, cache and implementation."""

        def alike(row: Row) -> tuple[str, PassName, Mode, Cache, str]:
            it = row.after
            return it.case.loss, it.pass_, it.mode, it.cache, it.implementation

        return [
            Mean(*key, geometric_mean(row.ratio.value for row in rows), len(rows))
            for key, rows in grouped(self.rows, alike).items()
        ]


def compare(
    before: Run,
    after: Run,
    tolerated: float = TOLERATED,
    *,
    comparisons: int = 0,
    errors_of: Mapping[RowKey, float] | None = None,
) -> Comparison:
    """Compare a run with a baseline; ``tolerated`` is the largest difference called the same.

    A search for a change gives ``comparisons``, the number of all rows, whose intervals have to
    hold at once, and ``errors_of``, the least standard error of each row's log ratio.
    """
    befores, afters = timed(before), timed(after)
    keys = [name for name in befores if name in afters]
    pairs = [(befores[name], afters[name]) for name in keys]
    groups = [(one.mode, one.cache) for one, _ in pairs]
    host = any(mode == HOST for mode, _ in groups)
    unlike = tuple(differences(before.environment, after.environment, host=host))
    why = no_controls(unlike)
    control = np.array([not why and one.implementation in CONTROLS for one, _ in pairs], dtype=bool)
    first, second = (
        np.array([max(median_of(pair[side]), 1e-12) for pair in pairs]) for side in (0, 1)
    )
    logs = np.log(second / first)
    device = "cuda" if str(after.environment.get("device")).startswith("cuda") else "cpu"
    errors, drifts, noise = np.zeros((3, len(pairs)))
    noises = []
    for group, own in grouped(range(len(pairs)), groups.__getitem__).items():
        alike = [(keys[index], *pairs[index]) for index in own]
        found = noise_of_rows(group, alike, logs[own], control[own], device, why)
        errors[own], drifts[own], noise[own], told = found
        noises.append(told)
    if errors_of:
        errors = np.maximum(errors, [errors_of[key] for key in keys])
    times = max(-(-comparisons // max(len(keys), 1)), 1)
    changes = ratios(first, second, errors, np.nan_to_num(drifts), noise, times)
    rows = [
        Row(*pair, ratio, _judgement(ratio, tolerated), counts, pair[1].busy)
        for pair, ratio, counts in zip(pairs, changes, control.tolist(), strict=True)
    ]
    gone, new = _missing(befores, afters, after), _missing(afters, befores, before)
    return Comparison(before, after, tuple(rows), gone, new, unlike, tuple(noises))


def _judgement(ratio: Change, tolerated: float) -> Judgement:
    if ratio.low > 1:
        return SLOWER
    if ratio.high < 1:
        return FASTER
    inside = ratio.low >= 1 / (1 + tolerated) and ratio.high <= 1 + tolerated
    return SAME if inside else UNCLEAR


def _missing(
    there: Mapping[RowKey, BenchResult], here: Mapping[RowKey, BenchResult], other: Run
) -> tuple[Untimed, ...]:
    if not there.keys() - here.keys():
        return ()
    others = {
        key(r): {"status": r.status, "reason": f"{r.status}: {r.reason}"}
        for r in other.of(BenchResult)
    }
    gone = (name for name in there if name not in here)
    return tuple(Untimed(**named(there[name]), **others.get(name, {})) for name in gone)
