"""A comparison as ``losscli compare --format json`` writes and reads it."""

import math
from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta, field

from losscli.compare.comparison import Comparison, Mean, Untimed
from losscli.compare.gate import Comparisons, FailOn
from losscli.compare.noise import CONFIDENCE, Noise
from losscli.compare.row_keys import median_of, named
from losscli.files.record import Record
from losscli.machine.differences import Difference
from losscli.runs.judgements import Judgement
from losscli.runs.measurements import Ratio
from losscli.runs.records import SCHEMA_VERSION


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
    limits: Mapping[str, float] = field(default_factory=dict)
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
