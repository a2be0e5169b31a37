"""Whether a comparison fails, by the options of `losscli compare`, and its record."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, TypeVar

from msgspec import Meta

from losscli.compare.comparison import Comparison, Mean, Row, Untimed
from losscli.compare.metrics import ENERGY, MEMORY, METRICS
from losscli.compare.noise import CONFIDENCE, Noise
from losscli.compare.row_keys import median_of, named
from losscli.files.record import Record
from losscli.implementations import is_own
from losscli.machine.differences import Difference
from losscli.runs.judgements import FASTER, SLOWER, Judgement
from losscli.runs.measurements import Ratio
from losscli.runs.records import SCHEMA_VERSION, Run

T = TypeVar("T")


@dataclass(frozen=True)
class FailOn:
    """The options of `losscli compare` that decide its exit code."""

    threshold: float = math.inf
    """``--fail-on time=``: the slowdown that fails a row; infinite without a limit."""
    missing: bool | None = None
    """``--fail-on-missing``; None: with any limit, for losscli's own implementations."""
    undecided: bool | None = None
    """``--fail-on-undecided``, with the same default."""
    limits: Mapping[str, float] = field(default_factory=dict)
    """``--fail-on``: the other metrics' limits."""

    @property
    def gates(self) -> bool:
        """Whether any metric has a limit."""
        return math.isfinite(self.threshold) or bool(self.limits)

    @property
    def minds_missing(self) -> bool:
        """Whether missing rows fail."""
        return self.gates if self.missing is None else self.missing

    @property
    def minds_undecided(self) -> bool:
        """Whether undecided rows fail."""
        return self.gates and self.undecided is not False

    def minds(self, row: Row) -> bool:
        """Tell whether this row fails if undecided, given that rows may."""
        return bool(self.undecided) or is_own(row.after.implementation)


@dataclass(frozen=True)
class Comparisons:
    """Runs against a baseline; lists pair each item with its run's name."""

    baseline: str
    comparisons: dict[str, Comparison]
    fail_on: FailOn = FailOn()

    @property
    def before(self) -> Run:
        """The baseline's run."""
        return next(iter(self.comparisons.values())).before

    def missing(self) -> list[tuple[str, Untimed]]:
        """Return the missing rows that fail the comparison."""
        if not self.fail_on.minds_missing:
            return []
        gone = self._all(lambda one: one.only_before)
        return [g for g in gone if self.fail_on.missing or is_own(g[1].implementation)]

    def cut_off(self) -> list[str]:
        """Return the runs whose file ends in half a line, if that fails."""
        if not self.fail_on.minds_missing or not self.comparisons:
            return []
        runs = {self.baseline: self.before} | {n: one.after for n, one in self.comparisons.items()}
        return [name for name, run in runs.items() if run.cut_off]

    def undecided(self) -> list[tuple[str, Row]]:
        """Return the undecided rows that fail the comparison."""
        if not self.fail_on.minds_undecided:
            return []
        undecided = self._all(lambda one: one.undecided(self.fail_on.threshold))
        return [(name, row) for name, row in undecided if self.fail_on.minds(row)]

    def blind(self) -> list[str]:
        """Return the runs in which no row could be judged, if that fails."""
        threshold = self.fail_on.threshold
        if math.isinf(threshold) or not self.fail_on.minds_undecided:
            return []
        return [name for name, one in self.comparisons.items() if one.blind(threshold)]

    def regressions(self) -> list[tuple[str, Row]]:
        """Return the rows that are slower beyond threshold and noise."""
        return self._all(lambda one: one.regressions(self.fail_on.threshold))

    def disturbed(self) -> list[tuple[str, Row]]:
        """Return the rows to measure again, since other programs disturbed them."""
        return self._all(lambda one: (r for r in one.rows if r.disturbed and self._would_fail(r)))

    def _would_fail(self, disturbed: Row) -> bool:
        row, fail_on = replace(disturbed, disturbed=False), self.fail_on
        minds = fail_on.minds_undecided and fail_on.minds(row)
        return (
            row.is_slower(fail_on.threshold)
            or (minds and row.is_undecided(fail_on.threshold))
            or row.has_grown(ENERGY, fail_on.limits.get(ENERGY, math.inf))
        )

    def grown(self, metric: str) -> list[tuple[str, Row]]:
        """Return the rows with a metric beyond its limit."""
        limit = self.fail_on.limits[metric]
        return self._all(lambda one: (row for row in one.rows if row.has_grown(metric, limit)))

    def unmeasured(self) -> list[tuple[str, str, list[Row]]]:
        """Return run, metric and rows that lack it; no rows where the whole run does."""
        if not self.fail_on.minds_undecided:
            return []
        found = []
        for metric in self.fail_on.limits:
            of = METRICS[metric].of
            for name, one in self.comparisons.items():
                known = [row for row in one.rows if not row.control and of(row.before) is not None]
                gone = [row for row in known if of(row.after) is None]
                lost = [row for row in gone if self.fail_on.minds(row)]
                if lost or (len(gone) == len(known) and not one.broken):
                    found.append((name, metric, lost))
        return found

    @property
    def has_changes(self) -> bool:
        """Whether it fails or asks again, or a row other than controls differs, is new or gone."""
        return bool(self.failed or self.disturbed()) or any(
            one.only_before
            or one.only_after
            or any(row.verdict in (FASTER, SLOWER) for row in one.rows if not row.control)
            or any(both and both[0] != both[1] for both in (row.both(MEMORY) for row in one.rows))
            for one in self.comparisons.values()
        )

    @property
    def failed(self) -> bool:
        """Whether something is slower, larger, broken, missing or undecided."""
        broken = self.fail_on.gates and self._all(lambda one: one.broken)
        unseen = self.missing() or self.cut_off() or self.undecided() or self.blind()
        worse = self.regressions() or any(map(self.grown, self.fail_on.limits))
        return bool(worse or broken or unseen or self.unmeasured())

    def _all(self, of: Callable[[Comparison], Iterable[T]]) -> list[tuple[str, T]]:
        return [(name, each) for name, one in self.comparisons.items() for each in of(one)]


class ComparedRow(Record, frozen=True, kw_only=True):
    """An implementation and pass of a case, timed in both runs."""

    run: str
    case: str
    pass_: str
    mode: str = ""
    cache: str = ""
    implementation: str
    table: str = ""
    seconds_before: float | None = None
    seconds_after: float | None = None
    peak_extra_bytes_before: int | None = None
    peak_extra_bytes_after: int | None = None
    ulp_before: float | None = None
    ulp_after: float | None = None
    ratio: Ratio
    ratio_low: Ratio
    ratio_high: Ratio
    verdict: Judgement
    control: bool = False
    regression: bool = False
    grown: tuple[str, ...] = ()
    undecided: bool = False


class ComparedRun(Record, frozen=True):
    """A run against the baseline."""

    run: str
    comparable: bool = True
    differences: tuple[Difference, ...] = ()
    noise: Annotated[float, Meta(ge=0, lt=1e30)] = 0.0
    controls: int = 0
    noises: tuple[Noise, ...] = ()
    undecided: int | None = None
    rows: tuple[ComparedRow, ...] = ()
    means: tuple[Mean, ...] = ()
    only_before: tuple[Untimed, ...] = ()
    only_after: tuple[Untimed, ...] = ()


class ComparisonRecord(Record, frozen=True, kw_only=True):
    """Runs against a baseline."""

    schema_version: int = SCHEMA_VERSION
    kind: str = "compare"
    baseline: str
    threshold: float | None = None
    limits: Mapping[str, float] = {}
    fail_on_missing: bool = False
    fail_on_undecided: bool = False
    missing: int = 0
    cut_off: tuple[str, ...] = ()
    failed: bool = False
    confidence: float = 0.0
    comparisons: tuple[ComparedRun, ...]


def record_of(compared: Comparisons) -> ComparisonRecord:
    """Return the record of a comparison."""
    fail_on = compared.fail_on
    return ComparisonRecord(
        baseline=compared.baseline,
        threshold=fail_on.threshold if math.isfinite(fail_on.threshold) else None,
        limits=fail_on.limits,
        fail_on_missing=fail_on.minds_missing,
        fail_on_undecided=fail_on.minds_undecided,
        missing=len(compared.missing()),
        cut_off=tuple(compared.cut_off()),
        failed=compared.failed,
        confidence=CONFIDENCE,
        comparisons=tuple(_run(name, one, fail_on) for name, one in compared.comparisons.items()),
    )


def _run(name: str, comparison: Comparison, fail_on: FailOn) -> ComparedRun:
    """Return a comparison with its rows; no row is slower or undecided without a threshold."""
    threshold = fail_on.threshold
    rows = tuple(
        ComparedRow(
            run=name,
            **named(row.after),
            seconds_before=median_of(row.before),
            seconds_after=median_of(row.after),
            peak_extra_bytes_before=row.before.peak_extra_bytes,
            peak_extra_bytes_after=row.after.peak_extra_bytes,
            ulp_before=row.before.error.ulp,
            ulp_after=row.after.error.ulp,
            ratio=row.ratio.value,
            ratio_low=row.ratio.low,
            ratio_high=row.ratio.high,
            verdict=row.verdict,
            control=row.control,
            regression=row.is_slower(threshold),
            grown=tuple(f for f, limit in fail_on.limits.items() if row.has_grown(f, limit)),
            undecided=row.is_undecided(threshold),
        )
        for row in comparison.rows
    )
    undecided = sum(row.undecided for row in rows) if math.isfinite(threshold) else None
    noise = max((each.value for each in comparison.noises), default=0.0)
    return ComparedRun(
        *(name, comparison.comparable, comparison.differences),
        *(noise, comparison.controls, comparison.noises),
        *(undecided, rows, tuple(comparison.means())),
        *(comparison.only_before, comparison.only_after),
    )
