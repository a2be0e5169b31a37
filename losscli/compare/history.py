"""The metrics of rows over commits, and the commits that changed them. Needs no torch."""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain, pairwise
from statistics import median
from typing import Any

from msgspec import field

from losscli.compare.change_points import ChangePoints
from losscli.compare.metrics import MEMORY, TIME
from losscli.compare.row_keys import RowKey, median_of, named, timed
from losscli.files.record import Record
from losscli.machine.differences import differences
from losscli.runs.records import SCHEMA_VERSION, BenchResult, Run


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
    """The metric on either side: the time over all runs, in seconds, or the memory at both
    commits."""
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
    """Return the history of runs of `losscli bench`, by name.

    ``order``: the commits of interest, the oldest first; None orders runs by their start. ``kept``
    tells which rows are shown; the others stay controls.
    """
    commits, left_out = _by_commit(runs, order)
    if not commits:
        return History(left_out=left_out)
    measured: list[dict[RowKey, list[BenchResult]]] = []
    for together in commits.values():
        measured.append({})
        for key, result in chain.from_iterable(timed(run).items() for run in together):
            measured[-1].setdefault(key, []).append(result)
    changes = ChangePoints(next(iter(commits.values()))[0], measured)
    names, series = list(commits), []
    for key in dict.fromkeys(key for rows in measured for key in rows):
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
            for index, row in changes.of(key)
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
    by_commit: dict[str, list[Run]] = {}
    for _, commit, run in found:
        by_commit.setdefault(commit, []).append(run)
    return by_commit, left_out


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
