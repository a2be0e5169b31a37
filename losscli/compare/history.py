"""The metrics of rows over commits, and the commits that changed them. Needs no torch.

At each commit, all earlier runs are compared with all later ones, each side as one run whose
processes are its runs. Among the commits that differ, the row changed at the one that separates the
sides best; then both sides are searched. Where none differs, parts of the history are searched.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, pairwise
from statistics import mean, median
from typing import Any

from msgspec import field
from msgspec.structs import replace

from losscli.compare.comparison import Row, compare
from losscli.compare.metrics import MEMORY, TIME
from losscli.compare.noise import noise_between_runs
from losscli.compare.row_keys import RowKey, median_of, named, timed
from losscli.files.record import Record
from losscli.machine.differences import differences
from losscli.runs.grouping import collected
from losscli.runs.records import SCHEMA_VERSION, BenchResult, Run


class ChangePoints:
    """The comparisons of a history, each made once for all rows."""

    def __init__(
        self, run: Run, measured: Sequence[Mapping[RowKey, Sequence[BenchResult]]]
    ) -> None:
        """``measured`` has each commit's rows, the oldest first; ``run`` is any run."""
        self._run, self._measured = run, measured
        self.rows = dict.fromkeys(key for rows in measured for key in rows)
        # All splits of each row, and as many for the sides of changed rows.
        each = sum(len(window) - 1 for window in _windows(range(len(measured))))
        self._comparisons = 2 * len(self.rows) * max(each, 1)
        self._spreads = {key: self._spread(key) for key in self.rows}
        self._compared = cache(self._compare)

    def of(self, key: RowKey, there: Sequence[int]) -> list[tuple[int, Row]]:
        """Return where a row changed, the oldest first; ``there``: the commits that have it."""
        for window in _windows(there):
            if found := self._change(key, window):
                before = [index for index in there if index < found[0]]
                after = [index for index in there if index >= found[0]]
                return [*self.of(key, before), found, *self.of(key, after)]
        return []

    def _change(self, key: RowKey, there: Sequence[int]) -> tuple[int, Row] | None:
        runs = [len(self._measured[index][key]) for index in there]
        # The fewest runs on each side, as a single one may be off.
        least = 1 + (sum(runs) >= 4) + (sum(runs) >= 12)
        rows = {
            split: self._compared(there[0], there[split], there[-1] + 1)[key]
            for split in range(1, len(there))
            if min(sum(runs[:split]), sum(runs[split:])) >= least
        }
        differs = [s for s, row in rows.items() if row.ratio.low > 1 or row.ratio.high < 1]
        if not differs:
            return None
        logs = [self._logs(key, index) for index in there]
        split = max(differs, key=lambda split: _parted(logs[:split], logs[split:]))
        return there[split], rows[split]

    def _compare(self, start: int, split: int, end: int) -> dict[RowKey, Row]:
        before, first = self._side(start, split)
        after, second = self._side(split, end)
        errors = {
            key: self._spreads[key] * math.sqrt(1 / first[key] + 1 / second[key])
            for key in timed(before)
            if key in second
        }
        found = compare(before, after, comparisons=self._comparisons, errors_of=errors)
        return dict(zip(errors, found.rows, strict=True))

    def _side(self, start: int, end: int) -> tuple[Run, dict[RowKey, int]]:
        """Return the runs of commits as one run, and each row's number of runs."""
        there = (item for measured in self._measured[start:end] for item in measured.items())
        rows = collected((key, result) for key, results in there for result in results)
        merged = replace(self._run, results=tuple(map(_merged, rows.values())))
        return merged, {key: len(results) for key, results in rows.items()}

    def _logs(self, key: RowKey, index: int) -> list[float]:
        return [math.log(median_of(result)) for result in self._measured[index].get(key, ())]

    def _spread(self, key: RowKey) -> float:
        """Return the standard deviation of the log of a run's median between runs.

        From the differences of successive runs without the two largest, which may be changes. Their
        median would miss a machine that is disturbed now and then.
        """
        logs = [log for index in range(len(self._measured)) for log in self._logs(key, index)]
        apart = sorted(abs(after - before) for before, after in pairwise(logs))
        usual = apart[:-2]
        square = sum(each**2 for each in usual) / max(len(usual), 1)
        known = noise_between_runs(apart, key.case.device.partition(":")[0])
        return max(known, math.sqrt(square)) / math.sqrt(2)


def _windows(there: Sequence[int]) -> Iterator[Sequence[int]]:
    """Yield all commits, then overlapping halves, ... down to eight: a change may be reverted."""
    length = len(there)
    yield there
    while (length := length // 2) >= 8:
        step = max(length // 2, 1)
        for start in range(0, len(there) - length + 1, step):
            yield there[start : start + length]


def _parted(before: Sequence[Sequence[float]], after: Sequence[Sequence[float]]) -> float:
    first, second = (list(chain.from_iterable(side)) for side in (before, after))
    known = math.sqrt(len(first) * len(second) / (len(first) + len(second)))
    return abs(mean(second) - mean(first)) * known


def _merged(results: Sequence[BenchResult]) -> BenchResult:
    """Merge a row's results in several runs as processes of one, with some 300 spaced samples."""
    if len(results) == 1:
        return results[0]
    most = max(300 // len(results), 9)
    known = [result.seconds for result in results if result.seconds]
    taken = [s.samples[:: math.ceil(len(s.samples) / most)] for s in known]
    together = replace(
        known[-1],
        median=median(seconds.median for seconds in known),
        samples=tuple(chain.from_iterable(taken)),
        processes=tuple(map(len, taken)),
    )
    return replace(results[-1], seconds=together)


class MeasuredCommit(Record, frozen=True):
    """A row at a commit."""

    commit: str
    runs: int
    created: str
    """When the last run began."""
    seconds: float
    """The median of the runs' medians."""
    peak_extra_bytes: int | None = None
    """The largest of any run."""


class MetricChange(Record, frozen=True):
    """A commit that changed a row's metric."""

    metric: str
    """``time`` or ``memory``."""
    commit: str
    previous: str
    """The commit with runs before it."""
    before: float
    after: float
    """On either side: the time over all runs, in seconds, or the memory at both commits."""
    low: float | None = None
    high: float | None = None
    """The interval of the ratio of times; memory is exact and has none."""


class RowHistory(Record, frozen=True):
    """A row over the commits, the oldest first."""

    result: BenchResult
    """The newest result."""
    points: tuple[MeasuredCommit, ...]
    steps: tuple[MetricChange, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object, with the row's name in place of a result."""
        parts = super().to_json()
        del parts["result"]
        return {name.rstrip("_"): value for name, value in named(self.result).items()} | parts


class History(Record, frozen=True, kw_only=True):
    """Rows over commits."""

    schema_version: int = SCHEMA_VERSION
    kind: str = "history"
    commits: tuple[str, ...] = ()
    """The oldest first."""
    left_out: Mapping[str, str]
    """Runs that are no part of it, by name, and why."""
    series: tuple[RowHistory, ...] = field(default=(), name="rows")


def history(
    runs: Mapping[str, Run],
    order: Sequence[str] | None = None,
    kept: Callable[[BenchResult], bool] = lambda result: True,
) -> History:
    """Return the history of named runs, in the ``order`` of commits, the oldest first, or of time.

    ``kept`` tells which rows are shown; the others stay controls.
    """
    commits, left_out = _by_commit(runs, order)
    if not commits:
        return History(left_out=left_out)
    measured = [
        collected(chain.from_iterable(timed(run).items() for run in together))
        for together in commits.values()
    ]
    changes = ChangePoints(next(iter(commits.values()))[0], measured)
    names, series = list(commits), []
    for key in changes.rows:
        there = [index for index, rows in enumerate(measured) if key in rows]
        last = measured[there[-1]][key][-1]
        if not kept(last):
            continue
        points = [_point(names[i], commits[names[i]], measured[i][key]) for i in there]
        steps = [
            MetricChange(
                TIME,
                *(names[index], names[there[there.index(index) - 1]]),
                *(median_of(row.before), median_of(row.after), row.ratio.low, row.ratio.high),
            )
            for index, row in changes.of(key, there)
        ]
        series.append(RowHistory(last, tuple(points), (*steps, *_of_memory(points))))
    return History(commits=tuple(names), left_out=left_out, series=tuple(series))


def _by_commit(
    runs: Mapping[str, Run], order: Sequence[str] | None
) -> tuple[dict[str, list[Run]], dict[str, str]]:
    """Return the runs of each commit, the oldest first, and why the others are left out."""
    by_time = sorted(runs.items(), key=lambda item: item[1].created)
    found: list[tuple[int, str, Run]] = []
    left_out: dict[str, str] = {}
    for name, run in by_time:
        known = run.environment
        # The commit of the file that was timed, or of losscli's own sources.
        commit: str = known.get("file_commit", known.get("commit")) or name
        if commit.endswith("+"):  # changes that no commit has
            commit = f"{commit} {name}"
        at = [index for index, asked in enumerate(order or ()) if asked.startswith(commit)]
        unlike = differences(known, by_time[-1][1].environment)
        decisive = [str(each) for each in unlike if each.decisive]
        if order is not None and not at:
            left_out[name] = f"its commit {commit} is not among the revisions"
        elif decisive:
            left_out[name] = f"different {decisive[0]}"
        else:
            found.append((at[0] if at else 0, commit, run))
    found.sort(key=lambda item: item[0])  # stable: runs of a commit stay in order
    return collected((commit, run) for _, commit, run in found), left_out


def _point(commit: str, runs: Sequence[Run], results: Sequence[BenchResult]) -> MeasuredCommit:
    known = [r.peak_extra_bytes for r in results if r.peak_extra_bytes is not None]
    created, seconds = max(run.created for run in runs), median(map(median_of, results))
    return MeasuredCommit(commit, len(results), created, seconds, max(known, default=None))


def _of_memory(points: Sequence[MeasuredCommit]) -> list[MetricChange]:
    """Return where a row's memory changed; it is exact, so any difference counts."""
    known = [(p.commit, p.peak_extra_bytes) for p in points if p.peak_extra_bytes is not None]
    return [
        MetricChange(MEMORY, commit, previous, before, after)
        for (previous, before), (commit, after) in pairwise(known)
        if before != after
    ]
